"""Linear models in closed form: features, layout, scores, gradient and Hessian."""

from __future__ import annotations

from functools import cached_property
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from torch import Tensor, nn

from fedcanon.errors import FedcanonError
from fedcanon.layout import Layout
from fedcanon.objectives.base import Objective
from fedcanon.objectives.families import Family

Array = NDArray[np.floating]
Features = Array | sparse.csr_array
Rows = TypeVar("Rows", Array, NDArray[np.intp], Features)


def as_features(given: ArrayLike | sparse.sparray) -> Features:
    """Return features as linear models keep them: an array or a matrix in CSR form, of floats."""
    x = sparse.csr_array(given) if sparse.issparse(given) else np.asarray(given)
    return x if x.dtype in (np.float32, np.float64) else x.astype(np.float64)


def column_of(name: str, given: ArrayLike, features: Features) -> Array:
    """Return one number for each sample, in the precision of the features.

    Raises:
        FedcanonError: There are more or fewer, or one is not finite.
    """
    column, samples = np.array(given, dtype=features.dtype), features.shape[0]
    if column.shape != (samples,) or not np.isfinite(column).all():
        raise FedcanonError(f"{name} needs a finite number for each of {samples} samples.")
    return column


def normalised(given: ArrayLike | None, features: Features) -> tuple[Array | None, float]:
    """Return the weights of samples with the mean 1, and their sum before; None are all 1.

    Raises:
        FedcanonError: A weight is negative, or all are 0.
    """
    if given is None:
        return None, float(features.shape[0])
    weights = column_of("weights", given, features)
    if not (weights >= 0).all() or not weights.any():
        raise FedcanonError("the weights of samples must be at least 0, and not all 0.")
    total = float(weights.sum())
    return weights * (len(weights) / total), total


def row_norms(features: Features, intercept: bool) -> NDArray[np.float64]:
    """Return the norm of every row, with a 1 at its end if there is an intercept."""
    squares = (features.astype(np.float64) ** 2).sum(axis=1)
    norms: NDArray[np.float64] = np.sqrt(squares + intercept)
    return norms


def require_single_records(weighted: bool, norms: NDArray[np.float64]) -> None:
    """Raise a ``FedcanonError`` if the gradient of a record depends on others, or is not finite.

    Args:
        weighted: Whether the samples have weights, which are divided by their mean.
        norms: The norms of their features.
    """
    if weighted:
        raise FedcanonError(
            "weights of records cannot be kept private, because they are divided by their sum, "
            "which depends on every record: leave the weights out."
        )
    if not np.isfinite(norms).all():
        raise FedcanonError(
            "a record has a feature that is missing or not finite: remove it or fill it in before "
            "records are made private."
        )


def chosen(rows: Rows, batch: Tensor | None) -> Rows:
    """Return some of the rows, or all of them without a copy."""
    return rows if batch is None else rows[batch.numpy()]


class LinearObjective(Objective):
    """f(w, b) = Σ_j ω_j loss(x_jᵀw + b + o_j, y_j) / Σ_j ω_j, gradient and Hessian in closed form.

    The flat vector is w followed by b (no b without ``intercept``), laid out as ``weight`` (1×d)
    and ``bias`` (1), as in ``nn.Linear(d, 1)``. The weights of features that are ``free`` of the
    penalty are a tensor of their own, ``free``. It has the precision of the features.

    Args:
        features: An m×d array, or any SciPy sparse matrix, which is kept in CSR form; its rows are
            the x_j.
        y: The m responses.
        family: The loss.
        weights: The weight ω_j of each sample; all are 1 by default.
        offset: What is added to the score of each sample; 0 by default.
        intercept: Whether there is a b.
        free: So many of the last features are not penalised: penalties act on weights.
        needs: What the model needs, as the beginning of a message.

    Raises:
        FedcanonError: Shapes do not fit, weights are negative, or a response cannot be.
    """

    draws = False
    has_hessian = True

    def __init__(
        self,
        features: ArrayLike | sparse.sparray,
        y: ArrayLike,
        family: Family,
        *,
        weights: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        intercept: bool = True,
        free: int = 0,
        needs: str = "a linear model needs an m×d feature matrix and m responses",
    ) -> None:
        self._x = x = as_features(features)
        shape = np.asarray(y).shape
        if x.ndim != 2 or shape != (x.shape[0],):
            raise FedcanonError(f"{needs}, not shapes {x.shape} and {shape}.")
        self.samples, self._intercept, self.family = x.shape[0], intercept, family
        self._y: Array = family.responses(np.asarray(y)).astype(self._x.dtype)
        self._offset = None if offset is None else column_of("offset", offset, x)
        self._weights, self.total_weight = normalised(weights, x)
        tensors: list[tuple[str, tuple[int, ...]]] = [("weight", (1, x.shape[1] - free))]
        tensors += [("free", (free,))] if free else []
        self.layout = Layout.of([*tensors, ("bias", (1,))] if intercept else tensors)

    def scores(self, x: Tensor, features: Features | None = None) -> Array:
        """The values x_jᵀw + b of these samples, or of the client's own, without offsets.

        Args:
            x: The flat vector of w and b.
            features: A row x_j for each sample; None stands for the client's own.
        """
        features = self._x if features is None else features
        vector = x.numpy()
        scores: Array = features @ vector[: features.shape[1]]
        return scores + vector[-1] if self._intercept else scores

    @property
    def weights(self) -> Array:
        """The weights of the samples, with the mean 1."""
        return np.ones_like(self._y) if self._weights is None else self._weights

    @property
    def responses(self) -> Array:
        """The responses, in the form that the family's losses take."""
        return self._y

    def own_scores(self, x: Tensor) -> Array:
        """The scores of the client's own samples, with their offsets."""
        scores = self.scores(x)
        return scores if self._offset is None else scores + self._offset

    def _mean(self, numbers: Array) -> float:
        return float((numbers if self._weights is None else self._weights * numbers).mean())

    def module(self, x: Tensor, buffers: Tensor) -> nn.Module:
        """``nn.Linear(d, 1)``, whose output is the score."""
        d = self._x.shape[1]
        module = nn.Linear(d, 1, bias=self._intercept, dtype=x.dtype)
        parameters = {"weight": x[:d].view(1, d)} | ({"bias": x[d:]} if self._intercept else {})
        module.load_state_dict(parameters)
        return module.eval()

    def value(self, x: Tensor) -> float:
        return self._mean(self.family.loss(self.own_scores(x), self._y))

    def deviance(self, x: Tensor) -> float:
        """The mean deviance of the samples at ``x``."""
        return self._mean(self.family.deviances(self.own_scores(x), self._y))

    def information(self, x: Tensor) -> Tensor:
        """Fisher's information of the samples about the model at ``x``, for a dispersion of 1."""
        expected = self.family.expected_curvatures(self.own_scores(x), self._y)
        weighted = expected if self._weights is None else self._weights * expected
        return self._weighted_square(weighted) * self.total_weight

    def score_square(self, x: Tensor) -> Tensor:
        """Σ_j ω_j² g_j g_jᵀ, where g_j is the gradient of the loss of sample j at ``x``."""
        slopes = self.family.slopes(self.own_scores(x), self._y)
        if self._weights is not None:
            slopes = slopes * self._weights * (self.total_weight / self.samples)
        return self._weighted_square(slopes**2) * self.samples

    def pearson(self, x: Tensor) -> float | None:
        """Σ_j ω_j (y_j − μ_j)²/V(μ_j) at ``x``; None if the family has no dispersion."""
        if not self.family.has_dispersion:
            return None
        means = self.family.means(self.own_scores(x))
        squares = (self._y - means) ** 2 / self.family.variances(means)
        return self._mean(squares) * self.total_weight

    def value_and_gradient(self, x: Tensor) -> tuple[float, Tensor]:
        return self.value(x), self.gradient(x, None)

    def gradient(self, x: Tensor, batch: Tensor | None) -> Tensor:
        features, slopes = self._slopes(x, batch)
        if self._weights is not None:
            slopes = chosen(self._weights, batch) * slopes
        return self._combined(features, slopes / len(slopes))

    def require_records(self) -> None:
        require_single_records(self._weights is not None, self._norms)

    def clipped_sum(self, x: Tensor, batch: Tensor | None, bound: float) -> Tensor:
        self.require_records()
        features, slopes = self._slopes(x, batch)
        # ∇ℓ_j = ℓ'_j a_j, where a_j is x_j and the 1 of the intercept: ‖∇ℓ_j‖ = |ℓ'_j| ‖a_j‖.
        with np.errstate(divide="ignore", over="ignore"):
            largest = bound / chosen(self._norms, batch)
            clipped = np.clip(slopes, -largest, largest).astype(self._y.dtype)
        return self._combined(features, np.nan_to_num(clipped))

    @cached_property
    def _norms(self) -> NDArray[np.float64]:
        """The norms of the a_j."""
        return row_norms(self._x, self._intercept)

    def _slopes(self, x: Tensor, batch: Tensor | None) -> tuple[Features, Array]:
        """The features of some samples, and the slopes of their losses without weights."""
        features: Features = chosen(self._x, batch)
        scores = self.scores(x, features)
        if self._offset is not None:
            scores = scores + chosen(self._offset, batch)
        return features, self.family.slopes(scores, chosen(self._y, batch))

    def _combined(self, features: Features, slopes: Array) -> Tensor:
        """Σ_j slope_j a_j, where a_j is x_j and the 1 of the intercept."""
        gradient = np.empty(self.layout.size, dtype=self._y.dtype)
        gradient[: features.shape[1]] = features.T @ slopes
        if self._intercept:
            gradient[-1] = slopes.sum()
        return torch.from_numpy(gradient)

    def hessian(self, x: Tensor) -> Tensor:
        curvatures = self.family.curvatures(self.own_scores(x), self._y)
        return self._weighted_square(
            curvatures if self._weights is None else self._weights * curvatures
        )

    def _weighted_square(self, curvatures: Array) -> Tensor:
        """The Hessian Σ_j c_j x_j x_jᵀ / m, where x_j ends with a 1 if there is an intercept."""
        features = self._x
        scaled = curvatures[:, None] / self.samples
        weighted, d = scaled * features, features.shape[1]
        product = features.T @ weighted
        hessian = np.empty((self.layout.size,) * 2, dtype=self._y.dtype)
        hessian[:d, :d] = product if isinstance(product, np.ndarray) else product.toarray()
        if self._intercept:
            hessian[d, :d] = hessian[:d, d] = weighted.sum(axis=0)
            hessian[d, d] = scaled.sum()
        return torch.from_numpy(hessian)
