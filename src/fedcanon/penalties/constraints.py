"""Constraints: h is 0 inside a set and infinite outside, and its prox is a projection.

``value`` allows for rounding: a point counts as inside when it misses a bound by no more than
1e-5 of that bound. The prox does not depend on the step, and B is infinite.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from fedcanon.errors import FedcanonError
from fedcanon.penalties import kernels
from fedcanon.penalties.base import Penalty, Shape, require_above
from fedcanon.penalties.radial import Radial
from fedcanon.penalties.separable import Separable

ROUNDING = 1e-5


class Interval(Separable):
    """lower ≤ x_j ≤ upper for every coordinate: the projection clips."""

    @property
    @abstractmethod
    def bounds(self) -> tuple[float, float]:
        """The interval; its ends may be infinite."""

    def value(self, x: Tensor) -> float:
        lower, upper = self.bounds
        above = x >= lower - ROUNDING * abs(lower)
        below = x <= upper + ROUNDING * abs(upper)
        return _indicator(bool((above & below).all()))

    def _formula(self, y: Tensor, step: float) -> Tensor:
        return y.clamp(*self.bounds)

    def _kernel(self, step: float) -> tuple[kernels.Kernel, tuple[float, ...]]:
        return kernels.clip, self.bounds


@dataclass(frozen=True)
class NonNegative(Interval):
    """No negative entries.

    x_j ≥ 0. prox_{ah}(y) = max(y, 0).
    """

    @property
    def bounds(self) -> tuple[float, float]:
        return 0.0, math.inf


@dataclass(frozen=True)
class Box(Interval):
    """Entries between two bounds.

    lower ≤ x_j ≤ upper. prox_{ah}(y) = min(max(y, lower), upper).

    Args:
        lower: The smallest value of an entry; −∞ for none.
        upper: The largest value of an entry; ∞ for none.
    """

    lower: float = 0.0
    upper: float = 1.0

    def __post_init__(self) -> None:
        if not self.lower <= self.upper:
            raise FedcanonError(
                f"Box needs lower ≤ upper, but lower is {self.lower:g} and upper {self.upper:g}."
            )

    @property
    def bounds(self) -> tuple[float, float]:
        return self.lower, self.upper


@dataclass(frozen=True)
class LInfBall(Interval):
    """Entries of limited size.

    |x_j| ≤ r. prox_{ah}(y) = min(max(y, −r), r).

    Args:
        radius: The largest size r > 0 of an entry.
    """

    radius: float = 1.0

    def __post_init__(self) -> None:
        require_above(self, "radius", 0)

    @property
    def bounds(self) -> tuple[float, float]:
        return -self.radius, self.radius


@dataclass(frozen=True)
class L2Ball(Radial):
    """Limited Euclidean norm.

    ‖x‖ ≤ r. prox_{ah}(y) = y min(1, r/‖y‖).

    Args:
        radius: The largest norm r > 0.
    """

    radius: float = 1.0

    def __post_init__(self) -> None:
        require_above(self, "radius", 0)

    def _outer(self, shape: Shape) -> Separable:
        return LInfBall(self.radius)

    def _rows(self, x: Tensor) -> Tensor:
        return x.unsqueeze(0)


@dataclass(frozen=True)
class Simplex(Penalty):
    """Non-negative entries with a fixed sum, as in a probability distribution.

    x_j ≥ 0 and Σ_j x_j = r. prox_{ah}(y) = max(y − τ, 0) with the τ that gives the sum r.

    Args:
        radius: The sum r > 0.

    Examples:
        >>> import torch
        >>> from fedcanon.penalties import Simplex
        >>> Simplex().prox(torch.tensor([0.5, 1.0, -2.0]), step=1.0)
        tensor([0.2500, 0.7500, 0.0000])
    """

    radius: float = 1.0

    def __post_init__(self) -> None:
        require_above(self, "radius", 0)

    def check_shape(self, shape: Shape) -> None:
        if not prod(shape):
            raise FedcanonError(
                f"no empty vector lies in the simplex, where entries add up to {self.radius:g}: "
                "give Simplex a tensor with entries."
            )

    def value(self, x: Tensor) -> float:
        self.check_shape(x.shape)
        slack = ROUNDING * self.radius
        total = float(x.sum(dtype=torch.float64))
        return _indicator(abs(total - self.radius) <= slack and bool((x >= -slack).all()))

    def _prox_(self, x: Tensor, step: float) -> None:
        y = x.double()
        largest, level = excess_level(y, self.radius)
        x.copy_(y.sub_(largest).sub_(level).clamp_(min=0))


@dataclass(frozen=True)
class L1Ball(Penalty):
    """Limited sum of magnitudes.

    Σ_j |x_j| ≤ r. prox_{ah}(y) is y inside the ball, otherwise sign(y) max(|y| − τ, 0) with the τ
    that gives the sum r.

    Args:
        radius: The largest sum r > 0.
    """

    radius: float = 1.0

    def __post_init__(self) -> None:
        require_above(self, "radius", 0)

    def value(self, x: Tensor) -> float:
        total = float(x.abs().sum(dtype=torch.float64))
        return _indicator(total <= self.radius * (1 + ROUNDING))

    def _prox_(self, x: Tensor, step: float) -> None:
        m = x.double().abs()
        if not float(m.sum()) <= self.radius:
            largest, level = excess_level(m, self.radius)
            x.copy_(m.sub_(largest).sub_(level).clamp_(min=0).copysign_(x))


@dataclass(frozen=True)
class Cardinality(Penalty):
    """At most so many non-zeros, a heuristic.

    No more than ``count`` entries x_j ≠ 0. The set is not convex, and ``in_theory`` is false.

    prox_{ah}(y) keeps the ``count`` entries of largest magnitude and sets the others to 0.

    Args:
        count: The largest number of non-zeros, at least 1.
    """

    count: int

    def __post_init__(self) -> None:
        require_above(self, "count", 0)

    @property
    def in_theory(self) -> bool:
        return False

    def value(self, x: Tensor) -> float:
        return _indicator(int(x.count_nonzero()) <= self.count)

    def _prox_(self, x: Tensor, step: float) -> None:
        if self.count < x.numel():
            flat = x.reshape(-1)
            largest = flat.abs().topk(self.count, sorted=False).indices
            x.copy_(torch.zeros_like(flat).index_copy_(0, largest, flat[largest]).view(x.shape))


def excess_level(y: Tensor, mass: float) -> tuple[float, float]:
    """The τ with Σ_j max(y_j − τ, 0) = mass > 0, exactly and without sorting (Michelot, 1986).

    Newton's method on a convex piecewise linear function: the active set only shrinks. τ comes as
    max_j y_j and a number between −mass and 0 that is added to it, because the sum of both loses
    the mass in rounding where y is much larger.
    """
    largest = float(y.max())
    if not math.isfinite(largest):
        return math.nan, math.nan
    lowest = max(largest - mass, (float(y.sum(dtype=torch.float64)) - mass) / y.numel())
    rounding = 1e-6 * abs(largest)
    active = y[y >= min(lowest, largest) - rounding].double() - largest
    while True:
        level = (float(active.sum()) - mass) / active.numel()
        above = active[active > level]
        if above.numel() in (0, active.numel()):
            return largest, level
        active = above


def _indicator(inside: bool) -> float:
    return 0.0 if inside else math.inf
