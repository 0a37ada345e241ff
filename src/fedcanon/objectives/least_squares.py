"""Linear least squares in closed form, on dense or sparse features."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from torch import Tensor

from fedcanon.errors import FedcanonError
from fedcanon.objectives.linear import LinearObjective


class LeastSquares(LinearObjective):
    """f(w, b) = (1/(2m)) Σ_j (x_jᵀw + b − y_j)², with ``targets`` y."""

    def __init__(
        self, features: ArrayLike | sparse.sparray, targets: ArrayLike, *, intercept: bool = True
    ) -> None:
        super().__init__(features, intercept=intercept)
        self._y = np.asarray(targets, dtype=self._x.dtype)
        if self._x.ndim != 2 or self._y.shape != (self._x.shape[0],):
            raise FedcanonError(
                f"least squares need an m×d feature matrix and m targets, not shapes "
                f"{self._x.shape} and {self._y.shape}."
            )
        self._lay_out()

    def value(self, x: Tensor) -> float:
        return 0.5 * float(np.mean((self.scores(x) - self._y) ** 2))

    def _slopes(
        self, scores: NDArray[np.floating], y: NDArray[np.floating]
    ) -> NDArray[np.floating]:
        return scores - y
