"""What linear models in closed form share: features, layout, scores and the gradient."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from torch import Tensor, nn

from fedcanon.layout import Layout
from fedcanon.objectives.base import Objective

Features = NDArray[np.floating] | sparse.csr_array


class LinearObjective(Objective):
    """f(w, b) = (1/m) Σ_j loss(x_jᵀw + b, y_j), its gradient in closed form.

    ``features`` is an m×d array or any SciPy sparse matrix (kept in CSR form). The flat vector is w
    followed by b (no b without ``intercept``), laid out as ``weight`` (1×d) and ``bias`` (1), as in
    ``nn.Linear(d, 1)``. The features' precision is the vector's.
    """

    _y: NDArray[np.floating]

    def __init__(self, features: ArrayLike | sparse.sparray, *, intercept: bool) -> None:
        self._x: Features = (
            sparse.csr_array(features) if sparse.issparse(features) else np.asarray(features)
        )
        if self._x.dtype not in (np.float32, np.float64):
            self._x = self._x.astype(np.float64)
        self._intercept = intercept

    def _lay_out(self) -> None:
        """Count samples and name the parts of the vector, once the features are a matrix."""
        self.samples = self._x.shape[0]
        weight = ("weight", (1, self._x.shape[1]))
        self.layout = Layout.of([weight, ("bias", (1,))] if self._intercept else [weight])

    @abstractmethod
    def _slopes(
        self, scores: NDArray[np.floating], y: NDArray[np.floating]
    ) -> NDArray[np.floating]:
        """∂loss/∂score of every sample."""

    def scores(self, x: Tensor, features: Features | None = None) -> NDArray[np.floating]:
        """Values wᵀx_j + b of these samples, or of the client's own."""
        features = self._x if features is None else features
        vector = x.numpy()
        scores: NDArray[np.floating] = features @ vector[: features.shape[1]]
        return scores + vector[-1] if self._intercept else scores

    def module(self, x: Tensor, buffers: Tensor) -> nn.Module:
        """``nn.Linear(d, 1)``, whose output is the score."""
        module = nn.Linear(self._x.shape[1], 1, bias=self._intercept, dtype=x.dtype)
        module.load_state_dict(self.layout.views(x))
        return module.eval()

    def value_and_gradient(self, x: Tensor) -> tuple[float, Tensor]:
        return self.value(x), self.gradient(x, None)

    def gradient(self, x: Tensor, batch: Tensor | None) -> Tensor:
        features, y = self._x, self._y
        if batch is not None:
            rows = batch.numpy()
            features, y = features[rows], y[rows]
        slopes = self._slopes(self.scores(x, features), y) / len(y)
        gradient = np.empty(self.layout.size, dtype=y.dtype)
        gradient[: features.shape[1]] = features.T @ slopes
        if self._intercept:
            gradient[-1] = slopes.sum()
        return torch.from_numpy(gradient)
