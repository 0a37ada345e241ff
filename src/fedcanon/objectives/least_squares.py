"""Linear least squares in closed form, on dense or sparse features."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from torch import Tensor, nn

from fedcanon.errors import FedcanonError
from fedcanon.layout import Layout
from fedcanon.objectives.base import Objective
from fedcanon.objectives.logistic import Features


class LeastSquares(Objective):
    """Linear least squares, its gradient in closed form.

    f(w, b) = (1/(2m)) Σ_j (x_jᵀw + b − y_j)².

    ``features`` is an m×d array or any SciPy sparse matrix (kept in CSR form), ``targets`` are m
    numbers. The flat vector is w followed by b (no b without ``intercept``), laid out as ``weight``
    (1×d) and ``bias`` (1), as in ``nn.Linear(d, 1)``. The features' precision is the vector's.
    """

    def __init__(
        self, features: ArrayLike | sparse.sparray, targets: ArrayLike, *, intercept: bool = True
    ) -> None:
        self._x: Features = (
            sparse.csr_array(features) if sparse.issparse(features) else np.asarray(features)
        )
        if self._x.dtype not in (np.float32, np.float64):
            self._x = self._x.astype(np.float64)
        self._y = np.asarray(targets, dtype=self._x.dtype)
        if self._x.ndim != 2 or self._y.shape != (self._x.shape[0],):
            raise FedcanonError(
                f"least squares need an m×d feature matrix and m targets, not shapes "
                f"{self._x.shape} and {self._y.shape}."
            )
        self._intercept = intercept
        self.samples = self._x.shape[0]
        weight = ("weight", (1, self._x.shape[1]))
        self.layout = Layout.of([weight, ("bias", (1,))] if intercept else [weight])

    def _residual(
        self, x: Tensor, features: Features, y: NDArray[np.floating]
    ) -> NDArray[np.floating]:
        """Xw + b − y."""
        vector = x.numpy()
        scores: NDArray[np.floating] = features @ vector[: features.shape[1]]
        return scores + vector[-1] - y if self._intercept else scores - y

    def module(self, x: Tensor, buffers: Tensor) -> nn.Module:
        """``nn.Linear(d, 1)``."""
        module = nn.Linear(self._x.shape[1], 1, bias=self._intercept, dtype=x.dtype)
        module.load_state_dict(self.layout.views(x))
        return module.eval()

    def value(self, x: Tensor) -> float:
        return 0.5 * float(np.mean(self._residual(x, self._x, self._y) ** 2))

    def value_and_gradient(self, x: Tensor) -> tuple[float, Tensor]:
        return self.value(x), self.gradient(x, None)

    def gradient(self, x: Tensor, batch: Tensor | None) -> Tensor:
        features, y = self._x, self._y
        if batch is not None:
            rows = batch.numpy()
            features, y = features[rows], y[rows]
        residual = self._residual(x, features, y) / len(y)
        gradient = np.empty(self.layout.size, dtype=y.dtype)
        gradient[: features.shape[1]] = features.T @ residual
        if self._intercept:
            gradient[-1] = residual.sum()
        return torch.from_numpy(gradient)
