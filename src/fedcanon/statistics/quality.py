"""How good a model is: deviance, discrimination and calibration, at each site and over all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcanon.errors import FedcanonError
from fedcanon.objectives.cox import Cox
from fedcanon.objectives.families import Binomial
from fedcanon.objectives.linear import Array, LinearObjective


@dataclass(frozen=True)
class Quality:
    """The quality of a model on some rows; what the family does not have is None.

    Args:
        rows: How many rows there are.
        deviance: The mean deviance.
        auc: The share of pairs of a row with and one without the event that scores put in order.
        brier: The mean square of the difference between event and probability.
        slope: That of the events on the scores: 1 if calibrated, below 1 if overfitted.
        concordance: The share of pairs in which who has the event earlier has the higher score.
    """

    rows: int
    deviance: float
    auc: float | None = None
    brier: float | None = None
    slope: float | None = None
    concordance: float | None = None


def quality(objective: LinearObjective, vector: Tensor) -> Quality:
    """Return the quality of a model on the rows of an objective."""
    deviance, scores = objective.deviance(vector), objective.own_scores(vector)
    if isinstance(objective, Cox):
        times, events = objective.times, objective.happened
        return Quality(objective.samples, deviance, concordance=concordance(times, events, scores))
    if not isinstance(objective.family, Binomial):
        return Quality(objective.samples, deviance)
    events = objective.responses > 0
    brier = float(np.mean((events - objective.family.means(scores)) ** 2))
    return Quality(
        objective.samples, deviance, auc(events, scores), brier, calibration_slope(events, scores)
    )


def auc(events: NDArray[np.bool_], scores: Array) -> float | None:
    """The area under the ROC curve, in which ties count as half; None without both outcomes."""
    positive = int(events.sum())
    pairs = positive * (len(events) - positive)
    if not pairs:
        return None
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[place]
    return float((ranks[events].sum() - positive * (positive + 1) / 2) / pairs)


def concordance(times: Array, events: NDArray[np.bool_], scores: Array) -> float | None:
    """Harrell's C: of pairs of which it is known who has the event earlier, the share in order.

    Pairs with equal scores count as half; None if there is no such pair.
    """
    agree = comparable = 0.0
    for time, score in zip(times[events], scores[events], strict=True):
        later = (times > time) | ((times == time) & ~events)
        comparable += int(later.sum())
        agree += int((scores[later] < score).sum()) + 0.5 * int((scores[later] == score).sum())
    return agree / comparable if comparable else None


def calibration_slope(events: NDArray[np.bool_], scores: Array) -> float | None:
    """The coefficient of scores in a logistic regression of events; None if there is none."""
    if events.all() or not events.any() or np.ptp(scores) == 0:
        return None
    model = LinearObjective(scores[:, None], events.astype("float64"), Binomial())
    x = torch.zeros(2, dtype=torch.float64)
    for _ in range(50):
        step = torch.linalg.solve(model.hessian(x), model.gradient(x, None))
        x = x - step
        if float(step.abs().max()) < 1e-10:
            return float(x[0])
    return None  # the scores separate the events, and the slope grows for ever


@dataclass(frozen=True)
class Calibration:
    """Rows in groups of increasing probability: their mean probability, share of events, number."""

    expected: Array
    observed: Array
    rows: NDArray[np.intp]


def calibration(events: NDArray[np.bool_], probabilities: Array, bins: int = 10) -> Calibration:
    """Return the calibration curve, in bins of equal width, whose sums add up over sites.

    Raises:
        FedcanonError: A probability is not between 0 and 1.
    """
    if not ((probabilities >= 0) & (probabilities <= 1)).all():
        raise FedcanonError("calibration needs probabilities between 0 and 1.")
    place = np.minimum((probabilities * bins).astype(int), bins - 1)
    rows = np.bincount(place, minlength=bins)
    kept = rows > 0
    expected = np.bincount(place, probabilities, minlength=bins)[kept] / rows[kept]
    observed = np.bincount(place, events.astype("float64"), minlength=bins)[kept] / rows[kept]
    return Calibration(expected, observed, rows[kept])
