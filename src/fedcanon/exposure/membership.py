"""Membership inference: whether a record was among the training data, from the model's loss on it.

Models have smaller losses on records that they have seen (Yeom et al., 2018).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score, roc_curve

Losses = NDArray[np.floating]

FALSE_ALARMS = 0.01
"""The share of strangers that an attacker takes for members in the second measure."""


@dataclass(frozen=True)
class Membership:
    """How well members can be told from strangers.

    Args:
        auc: The probability that a member has the smaller loss of the two; ½ is chance.
        hits: The share of members that are found with 1 % of false alarms; 0.01 is chance.
    """

    auc: float
    hits: float


def membership(members: Losses, strangers: Losses) -> Membership:
    """Return how well losses tell members from strangers.

    Args:
        members: The losses of records that were trained on.
        strangers: The losses of others.
    """
    truth = np.r_[np.ones(len(members)), np.zeros(len(strangers))]
    scores = -np.r_[members, strangers]
    false_alarms, hits, _ = roc_curve(truth, scores)
    found = hits[false_alarms <= FALSE_ALARMS].max()
    return Membership(float(roc_auc_score(truth, scores)), float(found))
