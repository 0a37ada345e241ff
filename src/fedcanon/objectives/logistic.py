"""Binary logistic regression in closed form, on dense or sparse features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import expit
from torch import Tensor, nn

from fedcanon.errors import FedcanonError
from fedcanon.layout import Layout
from fedcanon.objectives.base import Objective

Features = NDArray[np.floating] | sparse.csr_array


class Logistic(Objective):
    """Binary logistic regression, its gradient in closed form.

    f(w, b) = (1/m) Σ_j log(1 + exp(−y_j (x_jᵀw + b))) with labels y_j = ±1.

    ``features`` is an m×d array or any SciPy sparse matrix (kept in CSR form); labels may be given
    as ±1 or 0/1. The flat vector is w followed by b (no b without ``intercept``), laid out as
    ``weight`` (1×d) and ``bias`` (1), as in ``nn.Linear(d, 1)``. The features' precision is the
    vector's.
    """

    def __init__(
        self, features: ArrayLike | sparse.sparray, labels: ArrayLike, *, intercept: bool = True
    ) -> None:
        self._x: Features = (
            sparse.csr_array(features) if sparse.issparse(features) else np.asarray(features)
        )
        if self._x.dtype not in (np.float32, np.float64):
            self._x = self._x.astype(np.float64)
        labels = np.asarray(labels)
        if self._x.ndim != 2 or labels.shape != (self._x.shape[0],):
            raise FedcanonError(
                f"logistic regression needs an m×d feature matrix and m labels, not shapes "
                f"{self._x.shape} and {labels.shape}."
            )
        if not np.isin(labels, (-1, 0, 1)).all() or len(np.unique(labels)) > 2:
            raise FedcanonError("logistic regression needs labels −1 and 1, or 0 and 1.")
        self._y = np.where(labels > 0, 1, -1).astype(self._x.dtype)
        self._intercept = intercept
        self.samples = self._x.shape[0]
        weight = ("weight", (1, self._x.shape[1]))
        self.layout = Layout.of([weight, ("bias", (1,))] if intercept else [weight])

    def scores(self, x: Tensor, features: Features | None = None) -> NDArray[np.floating]:
        """Decision values wᵀx_j + b of these samples, or of the client's own."""
        features = self._x if features is None else features
        vector = x.numpy()
        scores: NDArray[np.floating] = features @ vector[: features.shape[1]]
        return scores + vector[-1] if self._intercept else scores

    def accuracy(self, x: Tensor) -> float:
        """The share of samples on the right side."""
        return float(np.mean((self.scores(x) > 0) == (self._y > 0)))

    def module(self, x: Tensor, buffers: Tensor) -> nn.Module:
        """``nn.Linear(d, 1)``, whose output is positive for the second class."""
        module = nn.Linear(self._x.shape[1], 1, bias=self._intercept, dtype=x.dtype)
        module.load_state_dict(self.layout.views(x))
        return module.eval()

    def value(self, x: Tensor) -> float:
        return float(np.logaddexp(0, -self._y * self.scores(x)).mean())

    def value_and_gradient(self, x: Tensor) -> tuple[float, Tensor]:
        return self.value(x), self.gradient(x, None)

    def gradient(self, x: Tensor, batch: Tensor | None) -> Tensor:
        features, y = self._x, self._y
        if batch is not None:
            rows = batch.numpy()
            features, y = features[rows], y[rows]
        residual = -y * expit(-y * self.scores(x, features)) / len(y)
        gradient = np.empty(self.layout.size, dtype=y.dtype)
        gradient[: features.shape[1]] = features.T @ residual
        if self._intercept:
            gradient[-1] = residual.sum()
        return torch.from_numpy(gradient)


@dataclass(frozen=True)
class LogisticTest:
    """Accuracy on samples that no client has."""

    held_out: Logistic

    def __call__(self, x: Tensor) -> dict[str, float]:
        """``{"accuracy": …}`` at ``x``."""
        return {"accuracy": self.held_out.accuracy(x)}
