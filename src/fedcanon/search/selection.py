"""How a model of a path is selected."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedcanon.data import Dataset, Split
from fedcanon.errors import FedcanonError
from fedcanon.objectives import Problem
from fedcanon.runs.config import parse_value
from fedcanon.search.point import Point

HELD_OUT = 0.2
"""The share of the training samples on which models are validated."""

Criterion = Literal["validation", "bic", "sparsity"]


@dataclass(frozen=True)
class Selection:
    """How a model is selected.

    "validation" takes the model with the smallest loss on samples that were held out, "bic" the
    one with the smallest BIC, and "sparsity" the one with the smallest training loss among those
    whose fraction of zeros is at least ``target``.
    """

    kind: Criterion = "validation"
    target: float = 0.0

    @property
    def label(self) -> str:
        """What the selection makes small, in words."""
        names = {"validation": "validation loss", "bic": "BIC", "sparsity": "loss"}
        return names[self.kind]

    def best(self, points: Sequence[Point]) -> int:
        """The number of the model that is selected.

        Raises:
            FedcanonError: no model has enough zeros.
        """
        allowed = [k for k, point in enumerate(points) if point.record.sparsity >= self.target]
        if not allowed:
            most = max(point.record.sparsity for point in points)
            raise FedcanonError(
                f"no model of the path has {self.target:.1%} zeros, the sparsest has {most:.1%}: "
                "use larger --kappas."
            )
        return min(allowed, key=lambda k: points[k].criterion)


def parse_selection(text: str) -> Selection:
    """Read ``validation``, ``bic`` or ``sparsity:0.9``.

    Raises:
        FedcanonError: the text is none of these.
    """
    name, _, rest = text.partition(":")
    target = parse_value(rest)
    if name == "sparsity" and isinstance(target, int | float) and 0 <= target <= 1:
        return Selection("sparsity", float(target))
    if text == "validation":
        return Selection("validation")
    if text == "bic":
        return Selection("bic")
    raise FedcanonError(
        f"--select takes validation, bic or sparsity:0.9 (a fraction of zeros), not '{text}'."
    )


def hold_out(dataset: Dataset, seed: int) -> tuple[Dataset, Split]:
    """Split off a random fifth of the training samples: the smaller dataset, and the fifth."""
    from sklearn.model_selection import train_test_split  # takes a second to import

    rows = np.arange(len(dataset.train))
    parts = train_test_split(rows, test_size=HELD_OUT, random_state=seed % 2**32)
    kept, held = (dataset.train.take(torch.from_numpy(np.sort(part))) for part in parts)
    return replace(dataset, train=kept), held


def bic(problem: Problem, z: Tensor) -> float:
    """BIC = 2·(sum of the losses of m samples) + d·log m, where d entries of z are not 0."""
    losses = problem.losses(z)
    samples = [client.samples for client in problem.clients]
    total = sum(count * loss for count, loss in zip(samples, losses, strict=True))
    return 2 * total + int(z.count_nonzero()) * math.log(sum(samples))
