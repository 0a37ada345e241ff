"""What linear models in closed form share: features, layout, scores, gradient and Hessian."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from torch import Tensor, nn

from fedcanon.errors import FedcanonError
from fedcanon.layout import Layout
from fedcanon.objectives.base import Objective

Array = NDArray[np.floating]
Features = Array | sparse.csr_array


class LinearObjective(Objective):
    """f(w, b) = (1/m) Σ_j loss(x_jᵀw + b, y_j), gradient and Hessian in closed form.

    The flat vector is w followed by b (no b without ``intercept``), laid out as ``weight`` (1×d)
    and ``bias`` (1), as in ``nn.Linear(d, 1)``. It has the precision of the features.
    """

    has_hessian = True

    _y: Array

    def __init__(
        self, features: ArrayLike | sparse.sparray, y: ArrayLike, needs: str, *, intercept: bool
    ) -> None:
        """Take the features and lay the vector out.

        Args:
            features: An m×d array, or any SciPy sparse matrix, which is kept in CSR form.
            y: The m labels or targets. They are counted only: ``_y`` is for the model to set.
            needs: What the model needs, as the beginning of a message.
            intercept: Whether there is a b.
        """
        x = sparse.csr_array(features) if sparse.issparse(features) else np.asarray(features)
        self._x: Features = x if x.dtype in (np.float32, np.float64) else x.astype(np.float64)
        shape = np.asarray(y).shape
        if x.ndim != 2 or shape != (x.shape[0],):
            raise FedcanonError(f"{needs}, not shapes {x.shape} and {shape}.")
        self.samples, self._intercept = x.shape[0], intercept
        weight = ("weight", (1, x.shape[1]))
        self.layout = Layout.of([weight, ("bias", (1,))] if intercept else [weight])

    @abstractmethod
    def _slopes(self, scores: Array, y: Array) -> Array:
        """∂loss/∂score of every sample."""

    @abstractmethod
    def _curvatures(self, scores: Array, y: Array) -> Array:
        """∂²loss/∂score² of every sample."""

    def scores(self, x: Tensor, features: Features | None = None) -> Array:
        """The values x_jᵀw + b of these samples, or of the client's own.

        Args:
            x: The flat vector of w and b.
            features: A row x_j for each sample; None stands for the client's own.
        """
        features = self._x if features is None else features
        vector = x.numpy()
        scores: Array = features @ vector[: features.shape[1]]
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

    def hessian(self, x: Tensor) -> Tensor:
        features = self._x
        curvatures = self._curvatures(self.scores(x), self._y)[:, None] / self.samples
        weighted, d = curvatures * features, features.shape[1]
        product = features.T @ weighted
        hessian = np.empty((self.layout.size,) * 2, dtype=self._y.dtype)
        hessian[:d, :d] = product if isinstance(product, np.ndarray) else product.toarray()
        if self._intercept:
            hessian[d, :d] = hessian[:d, d] = weighted.sum(axis=0)
            hessian[d, d] = curvatures.sum()
        return torch.from_numpy(hessian)
