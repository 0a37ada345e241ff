"""Binary logistic regression in closed form, on dense or sparse features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import expit
from torch import Tensor

from fedcanon.errors import FedcanonError
from fedcanon.objectives.linear import LinearObjective


class Logistic(LinearObjective):
    """f(w, b) = (1/m) Σ_j log(1 + exp(−y_j (x_jᵀw + b))) with labels y_j = ±1.

    Labels may be given as ±1 or 0/1. The score is positive for the second class.
    """

    def __init__(
        self, features: ArrayLike | sparse.sparray, labels: ArrayLike, *, intercept: bool = True
    ) -> None:
        super().__init__(features, intercept=intercept)
        labels = np.asarray(labels)
        if self._x.ndim != 2 or labels.shape != (self._x.shape[0],):
            raise FedcanonError(
                f"logistic regression needs an m×d feature matrix and m labels, not shapes "
                f"{self._x.shape} and {labels.shape}."
            )
        if not np.isin(labels, (-1, 0, 1)).all() or len(np.unique(labels)) > 2:
            raise FedcanonError("logistic regression needs labels −1 and 1, or 0 and 1.")
        self._y = np.where(labels > 0, 1, -1).astype(self._x.dtype)
        self._lay_out()

    def value(self, x: Tensor) -> float:
        return float(np.logaddexp(0, -self._y * self.scores(x)).mean())

    def accuracy(self, x: Tensor) -> float:
        """The share of samples on the right side."""
        return float(np.mean((self.scores(x) > 0) == (self._y > 0)))

    def _slopes(
        self, scores: NDArray[np.floating], y: NDArray[np.floating]
    ) -> NDArray[np.floating]:
        return -y * expit(-y * scores)


@dataclass(frozen=True)
class LogisticTest:
    """Accuracy on samples that no client has."""

    held_out: Logistic

    def __call__(self, x: Tensor) -> dict[str, float]:
        """``{"accuracy": …}`` at ``x``."""
        return {"accuracy": self.held_out.accuracy(x)}
