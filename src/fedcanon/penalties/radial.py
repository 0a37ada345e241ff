"""Penalties that keep directions and shrink norms, h(x) = Σ_g φ_g(‖x_g‖)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from fedcanon.penalties import kernels
from fedcanon.penalties.base import Penalty, Shape, require_above
from fedcanon.penalties.separable import L1, Separable


class Radial(Penalty):
    """h(x) = Σ_g φ_g(‖x_g‖) over disjoint groups, with φ_g increasing.

    h has the weak convexity of φ, since φ + (ρ/2)s² is convex and increasing in s ≥ 0. The prox
    keeps the direction of every group: it multiplies y_g by prox_{aφ}(‖y_g‖)/‖y_g‖ ≥ 0.
    """

    @abstractmethod
    def _outer(self, shape: Shape) -> Separable:
        """Σ_g φ_g as a penalty of the vector of group norms of a tensor of this shape."""

    @abstractmethod
    def _rows(self, x: Tensor) -> Tensor:
        """A view of ``x`` whose slices along dimension 0 are the groups."""

    def _norms(self, x: Tensor) -> Tensor:
        """The norm of every group; where that is too large for a number, the largest number."""
        rows = self._rows(x)
        rows = rows.reshape(len(rows), prod(rows.shape[1:]))
        limits = torch.finfo(x.dtype)
        if kernels.runs_on(rows):
            norms = torch.from_numpy(kernels.row_norms(rows.detach().numpy())).to(x.dtype)
        else:
            # Not torch.linalg.vector_norm: in float32 it is off by 4e-4 for ten million entries.
            norms = rows.square().sum(1).sqrt_()
            again = ~((norms > limits.tiny**0.5) & (norms < torch.inf))
            if bool(again.any()):  # the squares may be too large or too small for numbers
                size = rows[again].abs().amax(1).clamp_(limits.tiny, limits.max)
                norms[again] = (rows[again] / size[:, None]).square_().sum(1).sqrt_().mul_(size)
        return norms.clamp_(max=limits.max)

    def _scale_(self, x: Tensor, factors: Tensor) -> None:
        rows = self._rows(x)
        rows.mul_(factors.view(-1, *[1] * (rows.dim() - 1)))

    def value(self, x: Tensor) -> float:
        self.check_shape(x.shape)
        return self._outer(x.shape).value(self._norms(x)) if x.numel() else 0.0

    def _prox_(self, x: Tensor, step: float) -> None:
        norms = self._norms(x)
        shrunk = self._outer(x.shape).prox(norms, step)
        self._scale_(x, shrunk.div_(norms.masked_fill_(norms == 0, 1)))


@dataclass(frozen=True)
class L2(Radial):
    """ℓ2 norm, all or nothing.

    h(x) = κ‖x‖ (not squared), with all of x as one group. Convex, B = κ².

    prox_{ah}(y) = max(0, 1 − aκ/‖y‖) y.

    Args:
        kappa: The strength κ ≥ 0.
    """

    kappa: float = 1e-3

    def __post_init__(self) -> None:
        require_above(self, "kappa", 0, or_equal=True)

    def _outer(self, shape: Shape) -> Separable:
        return L1(self.kappa)

    def _rows(self, x: Tensor) -> Tensor:
        return x.unsqueeze(0)

    def subgradient_bound(self, shape: Shape) -> float:
        return self.kappa**2
