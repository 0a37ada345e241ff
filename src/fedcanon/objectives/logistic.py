"""Binary logistic regression in closed form, on dense or sparse features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from torch import Tensor

from fedcanon.objectives.families import Binomial
from fedcanon.objectives.linear import LinearObjective


class Logistic(LinearObjective):
    """f(w, b) = (1/m) Σ_j log(1 + exp(−y_j (x_jᵀw + b))) with labels y_j = ±1.

    The score x_jᵀw + b is positive for the second class.

    Args:
        features: An m×d array or SciPy sparse matrix, whose rows are the x_j.
        labels: The m labels y_j, given as ±1 or as 0 and 1.
        intercept: Whether there is a b.
    """

    def __init__(
        self, features: ArrayLike | sparse.sparray, labels: ArrayLike, *, intercept: bool = True
    ) -> None:
        needs = "logistic regression needs an m×d feature matrix and m labels"
        super().__init__(features, labels, Binomial(), intercept=intercept, needs=needs)

    def accuracy(self, x: Tensor) -> float:
        """The share of samples whose score has the sign of their label."""
        return float(np.mean((self.scores(x) > 0) == (self._y > 0)))


@dataclass(frozen=True)
class LogisticTest:
    """The accuracy of a model on samples that no client has, which ``held_out`` holds."""

    held_out: Logistic

    def __call__(self, x: Tensor) -> dict[str, float]:
        """``{"accuracy": …}`` at ``x``."""
        return {"accuracy": self.held_out.accuracy(x)}
