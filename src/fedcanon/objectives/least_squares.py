"""Linear least squares in closed form, on dense or sparse features."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from torch import Tensor

from fedcanon.objectives.linear import Array, LinearObjective


class LeastSquares(LinearObjective):
    """f(w, b) = (1/(2m)) Σ_j (x_jᵀw + b − y_j)².

    Args:
        features: An m×d array or SciPy sparse matrix, whose rows are the x_j.
        targets: The m numbers y_j.
        intercept: Whether there is a b.
    """

    def __init__(
        self, features: ArrayLike | sparse.sparray, targets: ArrayLike, *, intercept: bool = True
    ) -> None:
        needs = "least squares need an m×d feature matrix and m targets"
        super().__init__(features, targets, needs, intercept=intercept)
        self._y = np.asarray(targets, dtype=self._x.dtype)

    def value(self, x: Tensor) -> float:
        return 0.5 * float(np.mean((self.scores(x) - self._y) ** 2))

    def _slopes(self, scores: Array, y: Array) -> Array:
        return scores - y

    def _curvatures(self, scores: Array, y: Array) -> Array:
        return np.ones_like(scores)
