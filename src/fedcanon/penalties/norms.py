"""Norms whose prox comes from the projection onto the ball of the dual norm."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedcanon.penalties.base import Penalty, Shape, require_above
from fedcanon.penalties.constraints import excess_level


@dataclass(frozen=True)
class LInf(Penalty):
    """Largest magnitude.

    h(x) = κ max_j |x_j|. Convex, B = κ².

    prox_{ah}(y) = y − (projection of y onto the ℓ1 ball of radius aκ): 0 if Σ_j |y_j| ≤ aκ,
    otherwise the magnitudes clipped at the τ with Σ_j max(|y_j| − τ, 0) = aκ.

    Args:
        kappa: The strength κ ≥ 0.
    """

    kappa: float = 1e-3

    def __post_init__(self) -> None:
        require_above(self, "kappa", 0, or_equal=True)

    def value(self, x: Tensor) -> float:
        return self.kappa * float(x.abs().max()) if x.numel() else 0.0

    def _prox_(self, x: Tensor, step: float) -> None:
        mass = step * self.kappa
        if mass > 0:
            # The level is negative exactly when all of y lies in the dual ball.
            level = max(sum(excess_level(x.abs(), mass)), 0.0)
            x.clamp_(-level, level)

    def subgradient_bound(self, shape: Shape) -> float:
        return self.kappa**2
