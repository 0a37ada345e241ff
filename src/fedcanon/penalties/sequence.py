"""Penalties of vectors whose entries follow one another, such as samples in time."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from fedcanon.penalties import kernels
from fedcanon.penalties.base import Penalty, Shape, require_above, spoilt


@dataclass(frozen=True)
class TotalVariation(Penalty):
    """Total variation, piecewise constant sequences.

    h(x) = κ Σ_i |x_{i+1} − x_i|; in a tensor with more dimensions every line along the last one is
    a sequence of its own. Convex, B = κ²(4n − 6) for each sequence of length n ≥ 2.

    prox has no closed form; it is computed exactly, in float64 and in time O(n).

    Args:
        kappa: The strength κ ≥ 0.

    Examples:
        >>> import torch
        >>> from fedcanon.penalties import TotalVariation
        >>> TotalVariation(kappa=1.0).prox(torch.tensor([0.0, 1.0, 0.5, 8.0]), step=1.0)
        tensor([0.8333, 0.8333, 0.8333, 7.0000])
    """

    kappa: float = 1e-3

    def __post_init__(self) -> None:
        require_above(self, "kappa", 0, or_equal=True)

    def value(self, x: Tensor) -> float:
        return self.kappa * float(x.diff(dim=-1).abs().sum())

    def _prox_(self, x: Tensor, step: float) -> None:
        t = step * self.kappa
        if t > 0 and not spoilt(x):
            rows = x.detach().to("cpu", torch.float64, copy=True).reshape(-1, x.shape[-1])
            kernels.total_variation(rows.numpy(), t)
            x.copy_(rows.view(x.shape))

    def subgradient_bound(self, shape: Shape) -> float:
        return prod(shape[:-1]) * self.kappa**2 * max(0, 4 * shape[-1] - 6)
