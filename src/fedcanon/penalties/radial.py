"""Penalties that keep directions and shrink norms, h(x) = Σ_g φ_g(‖x_g‖)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

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
        rows = self._rows(x)
        if kernels.runs_on(rows):
            flat = rows.detach().view(len(rows), -1).numpy()
            return torch.from_numpy(kernels.row_norms(flat)).to(x.dtype)
        # Not torch.linalg.vector_norm: in float32 it is off by 4e-4 for ten million entries.
        return rows.square().sum(dim=tuple(range(1, rows.dim()))).sqrt_()

    def _scale_(self, x: Tensor, factors: Tensor) -> None:
        rows = self._rows(x)
        rows.mul_(factors.view(-1, *[1] * (rows.dim() - 1)))

    def value(self, x: Tensor) -> float:
        return self._outer(x.shape).value(self._norms(x))

    def _prox_(self, x: Tensor, step: float) -> None:
        norms = self._norms(x)
        shrunk = self._outer(x.shape).prox(norms, step)
        self._scale_(x, shrunk.div_(norms.masked_fill_(norms == 0, 1)))


@dataclass(frozen=True)
class L2(Radial):
    """ℓ2 norm, all or nothing.

    h(x) = κ‖x‖ (not squared), with all of x as one group. Convex, B = κ².

    prox_{ah}(y) = max(0, 1 − aκ/‖y‖) y.
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
