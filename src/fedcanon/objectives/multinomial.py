"""Multinomial logistic regression in closed form, on dense or sparse features."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import logsumexp, softmax
from torch import Tensor, nn

from fedcanon.errors import FedcanonError
from fedcanon.layout import Layout
from fedcanon.objectives.base import Objective
from fedcanon.objectives.linear import (
    Array,
    Features,
    as_features,
    chosen,
    normalised,
    require_single_records,
    row_norms,
)


def places_of_weights(classes: int, features: int, free: int) -> NDArray[np.intp]:
    """Return where the weight of every feature (column) for every class (row) is in a flat vector.

    The weights of penalised features come first, then those of the last features, which are
    ``free``; both class by class.
    """
    first = classes * (features - free)
    penalised = np.arange(first).reshape(classes, -1)
    others = np.arange(first, classes * features).reshape(classes, -1)
    return np.concatenate([penalised, others], axis=1)


class Multinomial(Objective):
    """f(W, b) = Σ_j ω_j [log Σ_c exp(η_jc) − η_{j, y_j}] / Σ_j ω_j with η_j = W x_j + b.

    The flat vector is W, class by class, followed by b, as in ``nn.Linear(d, classes)``.

    Args:
        features: An m×d array or SciPy sparse matrix, whose rows are the x_j.
        labels: The m classes y_j, counted from 0.
        classes: The number of classes.
        weights: The weight ω_j of each sample; all are 1 by default.
        intercept: Whether there is a b.
        free: So many of the last features are not penalised. Their weights are a tensor of their
            own, ``free``, class by class, between W and b.

    Raises:
        FedcanonError: Shapes do not fit, or a label is no class.
    """

    has_hessian = True

    def __init__(
        self,
        features: ArrayLike | sparse.sparray,
        labels: ArrayLike,
        classes: int,
        *,
        weights: ArrayLike | None = None,
        intercept: bool = True,
        free: int = 0,
    ) -> None:
        self._x = x = as_features(features)
        self._y: NDArray[np.intp] = np.asarray(labels).astype(np.intp)
        if x.ndim != 2 or self._y.shape != (x.shape[0],):
            raise FedcanonError(
                "multinomial regression needs an m×d feature matrix and m labels, not shapes "
                f"{x.shape} and {self._y.shape}."
            )
        if not ((self._y == np.asarray(labels)) & (self._y >= 0) & (self._y < classes)).all():
            raise FedcanonError(f"multinomial regression needs labels 0 to {classes - 1}.")
        self.samples, self._classes, self._intercept = x.shape[0], classes, intercept
        own, self.total_weight = normalised(weights, x)
        self._is_weighted = own is not None
        self._weights = np.ones(self.samples, x.dtype) if own is None else own
        tensors: list[tuple[str, tuple[int, ...]]] = [("weight", (classes, x.shape[1] - free))]
        tensors += [("free", (classes * free,))] if free else []
        self.layout = Layout.of([*tensors, ("bias", (classes,))] if intercept else tensors)
        # The places in the flat vector of each class's weights, side by side, and of its bias.
        weight, size = places_of_weights(classes, x.shape[1], free), self.layout.size
        biases = np.arange(weight.size, size).reshape(classes, -1)
        self._places: NDArray[np.intp] = np.concatenate([weight, biases], axis=1)

    def scores(self, x: Tensor, features: Features | None = None) -> Array:
        """The m×classes scores W x_j + b of these samples, or of the client's own."""
        features = self._x if features is None else features
        weights = x.numpy()[self._places]
        d = features.shape[1]
        scores: Array = features @ weights[:, :d].T
        return scores + weights[:, d] if self._intercept else scores

    def value(self, x: Tensor) -> float:
        scores = self.scores(x)
        own = np.take_along_axis(scores, self._y[:, None], axis=1)[:, 0]
        return float((self._weights * (logsumexp(scores, axis=1) - own)).mean())

    def deviance(self, x: Tensor) -> float:
        """The mean deviance of the samples at ``x``."""
        return 2 * self.value(x)

    def value_and_gradient(self, x: Tensor) -> tuple[float, Tensor]:
        return self.value(x), self.gradient(x, None)

    def gradient(self, x: Tensor, batch: Tensor | None) -> Tensor:
        features, slopes = self._slopes(x, batch)
        slopes *= chosen(self._weights, batch)[:, None] / len(slopes)
        return self._combined(features, slopes)

    def require_records(self) -> None:
        require_single_records(self._is_weighted, self._norms)

    def clipped_sum(self, x: Tensor, batch: Tensor | None, bound: float) -> Tensor:
        self.require_records()
        features, slopes = self._slopes(x, batch)
        # ∇ℓ_j = s_j a_jᵀ with the slopes s_j of all classes: ‖∇ℓ_j‖ = ‖s_j‖ ‖a_j‖.
        norms = np.linalg.norm(slopes, axis=1) * chosen(self._norms, batch)
        with np.errstate(divide="ignore", over="ignore"):
            factors = np.minimum(1, bound / norms).astype(slopes.dtype)
        return self._combined(features, np.nan_to_num(slopes * factors[:, None]))

    @cached_property
    def _norms(self) -> NDArray[np.float64]:
        """The norms of the a_j, which are x_j and the 1 of the intercept."""
        return row_norms(self._x, self._intercept)

    def _slopes(self, x: Tensor, batch: Tensor | None) -> tuple[Features, Array]:
        """The features of some samples, and the slopes of their losses in all scores."""
        features, y = chosen(self._x, batch), chosen(self._y, batch)
        slopes: Array = softmax(self.scores(x, features), axis=1)
        slopes[np.arange(len(y)), y] -= 1
        return features, slopes

    def _combined(self, features: Features, slopes: Array) -> Tensor:
        """Σ_j s_j a_jᵀ in the places of the flat vector."""
        gradient = np.empty(self.layout.size, dtype=self._x.dtype)
        gradient[self._places[:, : features.shape[1]]] = np.asarray((features.T @ slopes).T)
        if self._intercept:
            gradient[self._places[:, -1]] = slopes.sum(0)
        return torch.from_numpy(gradient)

    def hessian(self, x: Tensor) -> Tensor:
        shares = softmax(self.scores(x), axis=1)
        dense = self._x if isinstance(self._x, np.ndarray) else self._x.toarray()
        if self._intercept:
            dense = np.concatenate([dense, np.ones((self.samples, 1), dense.dtype)], axis=1)
        width, classes = dense.shape[1], self._classes
        found = np.empty((classes, width, classes, width), dtype=dense.dtype)
        for a in range(classes):
            for b in range(a + 1):
                product = shares[:, a] * ((a == b) - shares[:, b]) * self._weights / self.samples
                found[a, :, b] = found[b, :, a] = dense.T @ (product[:, None] * dense)
        # Each class has its weights and its bias side by side so far.
        order = np.argsort(self._places.ravel())
        square = found.reshape(classes * width, -1)[np.ix_(order, order)]
        return torch.from_numpy(np.ascontiguousarray(square))

    def module(self, x: Tensor, buffers: Tensor) -> nn.Module:
        """``nn.Linear(d, classes)``, whose outputs are the scores."""
        module = nn.Linear(self._x.shape[1], self._classes, bias=self._intercept, dtype=x.dtype)
        weights = x[torch.from_numpy(self._places)]
        d = self._x.shape[1]
        bias = {"bias": weights[:, d]} if self._intercept else {}
        module.load_state_dict({"weight": weights[:, :d], **bias})
        return module.eval()
