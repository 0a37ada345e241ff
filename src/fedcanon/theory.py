"""Step-size conditions and bounds of the convergence theory.

Symbols: f_i is L-smooth, h is ρ-weakly convex, ‖h'‖² ≤ B_h, mini-batch gradients of B samples have
variance σ²/B, K local steps, δ = 1/(1 − αρ)². Under the PL condition the constant is μ.

Theorem 1 asks for α(ρ + L) + 4α²L² ≤ ½ and 192(6 + δ)β²K²L² ≤ 1. Theorem 2 (PL) asks for
α(ρ + L) + 4α²L² ≤ min{½, (4μ(ρ + L) + 64L²)/μ²} and 12(6 + δ)β²K²L² ≤ min{1/16, 1 − αμ/4}.

The paper prints 50 and 25 where its proof gives 8(6 + δ) and 4(6 + δ); since δ ≥ 1 these are at
least 56 and 28, and they are used here. B_h bounds the squared norm of the whole subgradient:
dκ² for κ‖·‖₁ in d dimensions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedcanon.errors import FedcanonError


def delta(alpha: float, rho: float) -> float:
    """δ = 1/(1 − αρ)², for αρ < 1.

    Examples:
        >>> delta(alpha=0.5, rho=1.0)
        4.0
    """
    if alpha * rho >= 1:
        raise FedcanonError(f"the theory needs α < 1/ρ = {1 / rho:.4g}, but α = {alpha:.4g}.")
    return 1 / (1 - alpha * rho) ** 2


def server_limit(L: float, rho: float, mu: float | None = None) -> float:
    """The bound on α(ρ + L) + 4α²L²: ½, or Theorem 2's minimum where μ is given.

    Examples:
        >>> server_limit(L=2.0, rho=0.1)
        0.5
    """
    return 0.5 if mu is None else min(0.5, (4 * mu * (rho + L) + 64 * L**2) / mu**2)


def largest_alpha(L: float, rho: float, mu: float | None = None) -> float:
    """The largest α that Theorem 1 admits (Theorem 2 where μ is given); 1/(4L) for ρ = 0.

    Examples:
        >>> largest_alpha(L=2.0, rho=0.0)
        0.125
    """
    linear, limit = rho + L, server_limit(L, rho, mu)
    return (-linear + math.sqrt(linear**2 + 16 * limit * L**2)) / (8 * L**2)


def largest_beta(
    L: float, rho: float, local_steps: int, alpha: float, mu: float | None = None
) -> float:
    """The largest β that Theorem 1 admits beside this α (Theorem 2 where μ is given).

    Examples:
        >>> beta = largest_beta(L=2.0, rho=0.0, local_steps=10, alpha=0.125)
        >>> round(beta, 5)
        0.00136
    """
    shape = 6 + delta(alpha, rho)
    squared = 1 / (192 * shape) if mu is None else min(1 / 16, 1 - alpha * mu / 4) / (12 * shape)
    return math.sqrt(squared) / (local_steps * L)


@dataclass(frozen=True)
class Setting:
    """The constants of a problem and a run that the bounds are evaluated with.

    Examples:
        >>> setting = Setting(L=1.0, alpha=0.25, local_steps=10)
        >>> setting.theorem1(rounds=100, gap=1.0)
        0.32
        >>> round(setting.theorem2(rounds=100, gap=1.0, mu=0.5), 4)
        0.0418
    """

    L: float
    alpha: float
    local_steps: int
    rho: float = 0.0
    subgradient_bound: float = 0.0
    """B_h"""
    variance: float = 0.0
    """σ²"""
    batch: int = 1
    """B"""

    def noise(self, sampled: float, server: float) -> float:
        """sampled·(6 + δ)σ²/(BK) + server·σ²/B."""
        spread = self.variance / self.batch
        shape = 6 + delta(self.alpha, self.rho)
        return sampled * shape * spread / self.local_steps + server * spread

    def theorem1(self, rounds: int, gap: float, control_error: float = 0.0) -> float:
        """Bound on (1/T) Σ E‖G^α(z^t)‖² after T rounds.

            8[φ(z⁰) − φ* + αE⁰]/(αT) + 8(6 + δ)σ²/(BK) + σ²/(8B) + B_h

        ``gap`` is φ(z⁰) − φ*, ``control_error`` is E⁰.
        """
        start = 8 * (gap + self.alpha * control_error) / (self.alpha * rounds)
        return start + self.noise(8, 1 / 8) + self.subgradient_bound

    def theorem2(self, rounds: int, gap: float, mu: float, control_error: float = 0.0) -> float:
        """Bound on E[φ(z^T) − φ*] + αE^T after T rounds under the PL condition with μ.

        (1 − αμ/4)^T [φ(z⁰) − φ* + αE⁰] + 4(6 + δ)σ²/(μBK) + σ²/(16μB) + B_h/(2μ)
        """
        start = (1 - self.alpha * mu / 4) ** rounds * (gap + self.alpha * control_error)
        return start + self.noise(4, 1 / 16) / mu + self.subgradient_bound / (2 * mu)
