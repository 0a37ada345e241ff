"""Which model of a path is taken."""

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
"""The share of the training samples that validation keeps for itself."""

Criterion = Literal["validation", "bic", "sparsity"]


@dataclass(frozen=True)
class Selection:
    """Which model of a path is taken: the one with the smallest criterion.

    Args:
        kind: The criterion: "validation" is the loss on samples that are held out, "bic" the
            Bayesian information criterion, "sparsity" the training loss of those models that have
            enough zeros.
        target: The smallest fraction of zeros that a model may have.
    """

    kind: Criterion = "validation"
    target: float = 0.0

    @property
    def label(self) -> str:
        """The criterion in words."""
        names = {"validation": "validation loss", "bic": "BIC", "sparsity": "loss"}
        return names[self.kind]

    def best(self, points: Sequence[Point]) -> int:
        """The number of the model that is taken.

        Args:
            points: The models of the path.

        Raises:
            FedcanonError: No model has enough zeros.
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

    Args:
        text: What was given as ``--select``; the number is a fraction of zeros.

    Raises:
        FedcanonError: It is anything else.
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
    """The dataset without a fifth of its training samples, and the samples that were left out.

    Args:
        dataset: What is split; its test samples stay as they are.
        seed: It decides which samples are left out.
    """
    from sklearn.model_selection import train_test_split  # takes a second to import

    rows = np.arange(len(dataset.train))
    parts = train_test_split(rows, test_size=HELD_OUT, random_state=seed % 2**32)
    kept, held = (dataset.train.take(torch.from_numpy(np.sort(part))) for part in parts)
    return replace(dataset, train=kept), held


def bic(problem: Problem, z: Tensor) -> float:
    """2·(sum of all losses) + d·log m over all m samples, with d the number of non-zeros.

    Args:
        problem: The clients with their samples.
        z: The model as a flat vector, of which biases count as well.
    """
    losses = problem.losses(z)
    total = sum(count * loss for count, loss in zip(problem.samples, losses, strict=True))
    return 2 * total + int(z.count_nonzero()) * math.log(sum(problem.samples))
