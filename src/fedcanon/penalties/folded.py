"""Sparse penalties that are not convex, h(x) = Σ_j φ(|x_j|) with φ concave."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod, sqrt
from typing import Literal, get_args

import torch
from torch import Tensor

from fedcanon.errors import FedcanonError
from fedcanon.penalties import kernels
from fedcanon.penalties.base import Shape, require_above
from fedcanon.penalties.separable import Separable

Form = Literal["scaled", "lambda"]


class _Folded(Separable):
    """A penalty w Σ_j φ(|x_j|) whose concave φ has the slope λ at 0 and is constant in the end.

    In the form "scaled", the default, w = κ and λ = 1: the slope at 0 and the curvature grow with
    κ. In the form "lambda" w = 1 and λ = κ: the curvature does not depend on κ, and the penalty
    stops growing at an |x| of the order of κ.
    """

    kappa: float
    form: Form

    def __post_init__(self) -> None:
        require_above(self, "kappa", 0)
        if self.form not in get_args(Form):
            raise FedcanonError(
                f'{type(self).__name__} has the forms "scaled" and "lambda", not "{self.form}".'
            )

    @property
    def weight(self) -> float:
        """The factor w in front of the penalty."""
        return self.kappa if self.form == "scaled" else 1.0

    @property
    def level(self) -> float:
        """The level λ that sets where the penalty bends."""
        return 1.0 if self.form == "scaled" else self.kappa

    def subgradient_bound(self, shape: Shape) -> float:
        return prod(shape) * (self.weight * self.level) ** 2


@dataclass(frozen=True)
class MCP(_Folded):
    """Minimax concave penalty; form = "lambda" is that of ncvreg and skglm.

    h(x) = w Σ_j φ(|x_j|) with φ(m) = λm − m²/(2γ) for m ≤ γλ and γλ²/2 beyond.
    ρ = w/γ, B = d (wλ)². Form "scaled": w = κ, λ = 1; form "lambda": w = 1, λ = κ.

    With u = aw: prox is 0 for |y| ≤ uλ, sign(y)(|y| − uλ)/(1 − u/γ) for |y| ≤ γλ, y beyond.

    Args:
        kappa: The strength κ > 0.
        gamma: Where the penalty stops growing, in units of λ; γ > 0. The smaller it is, the
            larger is ρ.
        form: "scaled" multiplies the penalty by κ, so that it is flat beyond γ whatever κ is;
            "lambda" makes κ its λ, and it is flat beyond γκ. The latter is the MCP of Zhang 2010,
            ncvreg and skglm, and the default of ``fedcanon glm`` and ``FederatedGLM``. Solutions
            differ: for coefficients from theirs, take "lambda".

    Examples:
        Small entries become zero, large ones stay as they are:

        >>> import torch
        >>> from fedcanon.penalties import MCP
        >>> penalty = MCP(kappa=0.5, gamma=2.0)
        >>> penalty.prox(torch.tensor([0.25, -1.0, 3.0]), step=1.0)
        tensor([ 0.0000, -0.6667,  3.0000])
        >>> penalty.rho  # the step of the prox must be below 1/ρ = 4
        0.25
    """

    kappa: float = 1e-3
    gamma: float = 3.0
    form: Form = "scaled"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_above(self, "gamma", 0)

    @property
    def rho(self) -> float:
        return self.weight / self.gamma

    def value(self, x: Tensor) -> float:
        m = x.abs().clamp_(max=self.gamma * self.level)
        return self.weight * float((m * (self.level - m / (2 * self.gamma))).sum())

    def _constants(self, step: float) -> tuple[float, float]:
        u = step * self.weight
        return u * self.level, 1 / (1 - u / self.gamma)

    def _formula(self, y: Tensor, step: float) -> Tensor:
        t, slope = self._constants(step)
        m = y.abs()
        return torch.copysign(torch.minimum((m - t).clamp_(min=0).mul_(slope), m), y)

    def _kernel(self, step: float) -> tuple[kernels.Kernel, tuple[float, ...]]:
        return kernels.firm, self._constants(step)


@dataclass(frozen=True)
class SCAD(_Folded):
    """Smoothly clipped absolute deviation; form "lambda" is as in ncvreg.

    h(x) = w Σ_j φ(|x_j|) with φ(m) = λm for m ≤ λ, (2Aλm − m² − λ²)/(2(A − 1)) for m ≤ Aλ and
    (A + 1)λ²/2 beyond. ρ = w/(A − 1), B = d (wλ)². Form "scaled": w = κ, λ = 1; form "lambda":
    w = 1, λ = κ.

    With u = aw: prox is sign(y) max(|y| − uλ, 0) for |y| ≤ (1 + u)λ,
    ((A − 1)y − sign(y)uAλ)/(A − 1 − u) for |y| ≤ Aλ, y beyond.

    Args:
        kappa: The strength κ > 0.
        A: Where the penalty stops growing, in units of λ; A > 2. The smaller it is, the larger
            is ρ.
        form: "scaled" multiplies the penalty by κ, so that it is flat beyond A whatever κ is;
            "lambda" makes κ its λ, and it is flat beyond Aκ. The latter is the SCAD of Fan and Li
            2001, ncvreg and skglm, and the default of ``fedcanon glm`` and ``FederatedGLM``.
            Solutions differ: for coefficients from theirs, take "lambda".

    Examples:
        Small entries become zero, large ones stay as they are:

        >>> import torch
        >>> from fedcanon.penalties import SCAD
        >>> SCAD(kappa=0.5, A=3.5).prox(torch.tensor([0.25, -1.0, 5.0]), step=1.0)
        tensor([ 0.0000, -0.5000,  5.0000])
    """

    kappa: float = 1e-3
    A: float = 3.7
    form: Form = "scaled"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_above(self, "A", 2)

    @property
    def rho(self) -> float:
        return self.weight / (self.A - 1)

    def value(self, x: Tensor) -> float:
        A, level = self.A, self.level
        m = x.abs().clamp_(max=A * level)
        bend = (2 * A * level * m - m**2 - level**2) / (2 * (A - 1))
        return self.weight * float(torch.where(m <= level, level * m, bend).sum())

    def _constants(self, step: float) -> tuple[float, float, float]:
        u = step * self.weight
        width = self.A - 1 - u
        return u * self.level, (self.A - 1) / width, u * self.A * self.level / width

    def _formula(self, y: Tensor, step: float) -> Tensor:
        t, slope, offset = self._constants(step)
        m = y.abs()
        piece = torch.maximum((m - t).clamp_(min=0), slope * m - offset)
        return torch.copysign(torch.minimum(piece, m), y)

    def _kernel(self, step: float) -> tuple[kernels.Kernel, tuple[float, ...]]:
        return kernels.scad, self._constants(step)


@dataclass(frozen=True)
class LogSum(Separable):
    """Log-sum penalty, the limit of reweighted ℓ1.

    h(x) = κ Σ_j log(1 + |x_j|/ε). ρ = κ/ε², B = d (κ/ε)².

    prox is 0 for |y| ≤ aκ/ε, sign(y)(|y| − ε + √((|y| + ε)² − 4aκ))/2 beyond.

    Args:
        kappa: The strength κ > 0.
        eps: ε > 0, the size of an entry above which the penalty grows only slowly.
    """

    kappa: float = 1e-3
    eps: float = 0.1

    def __post_init__(self) -> None:
        require_above(self, "kappa", 0)
        require_above(self, "eps", 0)

    @property
    def rho(self) -> float:
        return self.kappa / self.eps / self.eps

    def value(self, x: Tensor) -> float:
        return self.kappa * float((x.abs() / self.eps).log1p_().sum())

    def _constants(self, step: float) -> tuple[float, float, float]:
        return step * self.kappa / self.eps, self.eps, 2 * sqrt(step * self.kappa)

    def _formula(self, y: Tensor, step: float) -> Tensor:
        t, eps, root = self._constants(step)
        m = y.abs()
        q = root / (m + eps)
        inside = ((1 - q) * (1 + q)).clamp_(min=0)
        larger = (m - eps + (m + eps) * inside.sqrt_()) / 2
        return torch.copysign(larger.masked_fill_(m <= t, 0), y)

    def _kernel(self, step: float) -> tuple[kernels.Kernel, tuple[float, ...]]:
        return kernels.log_sum, self._constants(step)

    def subgradient_bound(self, shape: Shape) -> float:
        return prod(shape) * (self.kappa / self.eps) ** 2


@dataclass(frozen=True)
class L0(Separable):
    """Number of non-zeros, a heuristic.

    h(x) = κ #{j : x_j ≠ 0}. No ρ makes it convex (``in_theory`` is false and ``rho`` says nothing);
    its prox exists for every step, B is infinite.

    prox is y for |y| > √(2aκ), 0 otherwise.

    Args:
        kappa: The strength κ ≥ 0, the price of a non-zero.
    """

    kappa: float = 1e-3

    def __post_init__(self) -> None:
        require_above(self, "kappa", 0, or_equal=True)

    @property
    def in_theory(self) -> bool:
        return False

    def value(self, x: Tensor) -> float:
        return self.kappa * int(x.count_nonzero())

    def _formula(self, y: Tensor, step: float) -> Tensor:
        return y.masked_fill(y.abs() <= sqrt(2 * step * self.kappa), 0)

    def _kernel(self, step: float) -> tuple[kernels.Kernel, tuple[float, ...]]:
        return kernels.hard, (sqrt(2 * step * self.kappa),)
