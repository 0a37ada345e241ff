"""Linear least squares in closed form, on dense or sparse features."""

from __future__ import annotations

from numpy.typing import ArrayLike
from scipy import sparse

from fedcanon.objectives.families import Gaussian
from fedcanon.objectives.linear import LinearObjective


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
        super().__init__(features, targets, Gaussian(), intercept=intercept, needs=needs)
