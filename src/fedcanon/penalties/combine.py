"""Sums of penalties whose prox is known from the proxes of the terms."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import sqrt

from torch import Tensor

from fedcanon.errors import FedcanonError
from fedcanon.penalties.base import Penalty, Shape
from fedcanon.penalties.constraints import Interval, NonNegative
from fedcanon.penalties.radial import Radial
from fedcanon.penalties.separable import L1, Ridge, Separable, WeightedL1
from fedcanon.penalties.sequence import TotalVariation


@dataclass(frozen=True)
class Zero(Penalty):
    """No penalty.

    h(x) = 0. Convex, B = 0. prox is the identity.
    """

    is_separable = True

    def value(self, x: Tensor) -> float:
        return 0.0

    def _prox_(self, x: Tensor, step: float) -> None:
        pass

    def subgradient_bound(self, shape: Shape) -> float:
        return 0.0


@dataclass(frozen=True)
class Sum(Penalty):
    """Sum of penalties whose prox is known.

    h = Σ_i h_i + (m/2)‖·‖², where m is the sum of the κ of all ridge terms and the h_i are the
    other terms. ρ = max(0, Σ_i ρ_i − m), and B is bounded by (Σ_i √B_i)².

    A ridge goes with any penalty: prox_{ah}(y) = prox_{b Σ h_i}(y/(1 + am)) with b = a/(1 + am).
    For the others the proxes are applied one after the other, in the order of this list and not in
    that of the terms:

    1. total variation,
    2. a separable penalty Σ_j φ(x_j), the same φ for all j if total variation comes before it,
    3. an interval constraint (``NonNegative``, ``Box``, ``LInfBall``),
    4. a penalty or bound of group norms (``L2``, ``GroupLasso``, ``GroupMCP``, ``GroupSCAD``,
       ``L2Ball``), after no more than ``L1`` or ``WeightedL1`` and ``NonNegative``.

    Why this is exact. With bρ < 1 the objective is strongly convex, so a stationary point is the
    minimiser. Step 3 after 2: a strongly convex function of one number decreases until its
    minimiser and increases after it, so over an interval its minimiser is the clipped one. Else
    let u be the prox of the first function and p that of the second at u. Then y − u ∈ b∂h₁(u) and
    u − p ∈ b∂h₂(p), and p is stationary if ∂h₁(u) ⊆ ∂h₁(p). Steps 2 and 3 after 1: prox_φ is
    increasing, so each p_{i+1} − p_i has the sign of u_{i+1} − u_i or is 0. Step 4 after 2 and 3:
    p is u with every group multiplied by a number ≥ 0, and h₁ is separable and h₁(cx) = c h₁(x)
    for c ≥ 0, so ∂h₁ can only grow.

    Args:
        terms: The penalties that are added up, in any order. A sum whose prox is not known is
            refused with a ``FedcanonError``.

    Examples:
        >>> import torch
        >>> from fedcanon.penalties import L1, NonNegative, Sum
        >>> penalty = Sum((L1(kappa=0.5), NonNegative()))
        >>> penalty.prox(torch.tensor([2.0, 0.2, -3.0]), step=1.0)
        tensor([1.5000, 0.0000, 0.0000])
    """

    terms: tuple[Penalty, ...]

    def __post_init__(self) -> None:
        _ = self._chain

    @cached_property
    def _chain(self) -> tuple[Penalty, ...]:
        """The terms other than ridges, in the order in which their proxes are applied."""
        others = (term for term in self.terms if not isinstance(term, Ridge | Zero))
        chain = tuple(sorted(others, key=_place))
        for first, second in combinations(chain, 2):
            if not _may_follow(first, second):
                raise FedcanonError(
                    f"the prox of {type(first).__name__} + {type(second).__name__} is not known in "
                    "closed form. A sum may hold any penalty with Ridge; TotalVariation, one "
                    "penalty of single entries and NonNegative, Box or LInfBall; or L1, WeightedL1 "
                    "and NonNegative with L2, GroupLasso, GroupMCP, GroupSCAD or L2Ball."
                )
        return chain

    @property
    def _ridge(self) -> float:
        return sum(term.kappa for term in self.terms if isinstance(term, Ridge))

    @property
    def in_theory(self) -> bool:
        return all(term.in_theory for term in self.terms)

    @property
    def is_separable(self) -> bool:
        return all(term.is_separable for term in self.terms)

    @property
    def rho(self) -> float:
        return max(0.0, sum(term.rho for term in self._chain) - self._ridge)

    def check_shape(self, shape: Shape) -> None:
        for term in self.terms:
            term.check_shape(shape)

    def value(self, x: Tensor) -> float:
        return sum(term.value(x) for term in self.terms)

    def _prox_(self, x: Tensor, step: float) -> None:
        growth = 1 + step * self._ridge
        x.div_(growth)
        for term in self._chain:
            term._prox_(x, step / growth)

    def subgradient_bound(self, shape: Shape) -> float:
        return sum(sqrt(term.subgradient_bound(shape)) for term in self.terms) ** 2

    def penalised(self, x: Tensor) -> list[Tensor]:
        return self._chain[0].penalised(x) if len(self._chain) == 1 else [x]


def _place(term: Penalty) -> int:
    """The number of the step in the docstring of Sum; 0 for what only a ridge may join."""
    if isinstance(term, TotalVariation):
        return 1
    if isinstance(term, Interval):
        return 3
    if isinstance(term, Separable):
        return 2
    return 4 if isinstance(term, Radial) else 0


def _may_follow(first: Penalty, second: Penalty) -> bool:
    """Whether the prox of the sum is the prox of ``second`` after that of ``first``."""
    if not (first.in_theory and second.in_theory):
        return False
    match _place(first), _place(second):
        case (1, 2 | 3):
            return not isinstance(second, WeightedL1)
        case (2, 3):
            return True
        case (2 | 3, 4):
            return isinstance(first, L1 | WeightedL1 | NonNegative)
    return False
