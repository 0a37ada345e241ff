"""Penalties of singular values, h(X) = Σ_i φ(σ_i(X)): matrices of low rank."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from fedcanon.errors import FedcanonError
from fedcanon.penalties.base import Penalty, Shape, require_above, spoilt
from fedcanon.penalties.folded import MCP, Form
from fedcanon.penalties.separable import L1, Separable


class _Spectral(Penalty):
    """h(X) = Σ_i φ(σ_i(X)), with the weak convexity of φ.

    A tensor with two or more dimensions is seen as a matrix whose rows are the slices along its
    first dimension, so a convolution has a row for each output channel. A vector needs ``shape``.

    prox applies the prox of φ to the singular values and keeps the singular vectors.
    """

    shape: tuple[int, int] | None

    @property
    @abstractmethod
    def _outer(self) -> Separable:
        """Σ_i φ as a penalty of the vector of singular values."""

    def _matrix_shape(self, shape: Shape) -> tuple[int, int]:
        if self.shape is not None:
            if prod(self.shape) != prod(shape):
                raise FedcanonError(
                    f"{type(self).__name__} sees a {self.shape[0]} × {self.shape[1]} matrix, but "
                    f"acts on a tensor with {prod(shape)} entries."
                )
            return self.shape
        if len(shape) < 2:
            raise FedcanonError(
                f"{type(self).__name__} acts on a vector of length {prod(shape)} and needs "
                "shape: the numbers of rows and columns of the matrix that it holds."
            )
        return shape[0], prod(shape[1:])

    def check_shape(self, shape: Shape) -> None:
        self._matrix_shape(shape)

    @property
    def rho(self) -> float:
        return self._outer.rho

    def value(self, x: Tensor) -> float:
        return self._outer.value(torch.linalg.svdvals(x.reshape(self._matrix_shape(x.shape))))

    def _prox_(self, x: Tensor, step: float) -> None:
        matrix = x.reshape(self._matrix_shape(x.shape))
        if spoilt(x):
            return
        left, sigma, right = torch.linalg.svd(matrix, full_matrices=False)
        self._outer.prox_(sigma, step)
        rank = int(sigma.count_nonzero())
        x.copy_(((left[:, :rank] * sigma[:rank]) @ right[:rank]).view(x.shape))

    def subgradient_bound(self, shape: Shape) -> float:
        return self._outer.subgradient_bound((min(self._matrix_shape(shape)),))


@dataclass(frozen=True)
class Nuclear(_Spectral):
    """Nuclear norm, the convex penalty for low rank.

    h(X) = κ Σ_i σ_i(X). Convex, B = κ² min(m, n) for an m × n matrix.

    prox_{ah} replaces each singular value σ by max(σ − aκ, 0).

    Args:
        kappa: The strength κ ≥ 0.
        shape: Rows and columns of the matrix, where x is a vector. A tensor with more dimensions
            has a row for each entry of its first one.

    Examples:
        >>> import torch
        >>> from fedcanon.penalties import Nuclear
        >>> y = torch.diag(torch.tensor([3.0, 2.0, 0.5]))
        >>> sparse = Nuclear(kappa=1.0).prox(y, step=1.0)
        >>> torch.linalg.svdvals(sparse)
        tensor([2., 1., 0.])
    """

    kappa: float = 1e-3
    shape: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        require_above(self, "kappa", 0, or_equal=True)

    @property
    def _outer(self) -> Separable:
        return L1(self.kappa)


@dataclass(frozen=True)
class SingularValueMCP(_Spectral):
    """Minimax concave penalty of singular values.

    h(X) = w Σ_i φ(σ_i(X)) with w, φ and both forms as for MCP. ρ = w/γ, B = (wλ)² min(m, n).

    prox_{ah} replaces each singular value by its MCP prox.

    Args:
        kappa: The strength κ > 0, as for MCP.
        gamma: γ > 0, as for MCP.
        form: "scaled" or "lambda", as for MCP.
        shape: Rows and columns of the matrix, where x is a vector.
    """

    kappa: float = 1e-3
    gamma: float = 3.0
    form: Form = "scaled"
    shape: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        _ = self._outer

    @property
    def _outer(self) -> Separable:
        return MCP(self.kappa, self.gamma, self.form)
