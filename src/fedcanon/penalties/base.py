"""The contract of a penalty h."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from torch import Tensor

from fedcanon.errors import FedcanonError

Shape = tuple[int, ...]


class Penalty(ABC):
    """A regulariser h(x), known through its value and its proximal operator.

        prox_{a h}(y) = argmin_x  h(x) + ‖x − y‖²/(2a)

    h is ρ-weakly convex when h + (ρ/2)‖·‖² is convex; the prox is then single valued for
    0 < a < 1/ρ and Lipschitz with constant 1/(1 − aρ). A penalty works on a tensor of any shape
    and on any device; structured penalties give the shape a meaning (rows are groups, a matrix has
    singular values). Penalties are frozen dataclasses: their fields are their parameters.

    A new penalty writes ``value`` and ``_prox_``, and overrides ``rho`` and ``subgradient_bound``
    where the defaults (convex, unbounded) do not hold.
    """

    @property
    def in_theory(self) -> bool:
        """False for functions that no ρ makes convex (ℓ0, cardinality): the prox is a heuristic."""
        return True

    @property
    def rho(self) -> float:
        """The weak-convexity constant ρ; 0 for a convex penalty."""
        return 0.0

    @abstractmethod
    def value(self, x: Tensor) -> float:
        """h(x); infinite outside the set for a constraint."""

    @abstractmethod
    def _prox_(self, x: Tensor, step: float) -> None:
        """Overwrite ``x`` with prox_{step·h}(x); ``step`` is positive and below 1/ρ."""

    def prox_(self, x: Tensor, step: float) -> Tensor:
        """Overwrite ``x`` with prox_{step·h}(x) and return it. A step of 0 is the identity."""
        self.check_step(step)
        if step > 0:
            self._prox_(x, step)
        return x

    def prox(self, x: Tensor, step: float) -> Tensor:
        """prox_{step·h}(x) as a new tensor."""
        return self.prox_(x.clone(), step)

    def check_step(self, step: float) -> None:
        """Refuse a step outside the domain 0 ≤ step < 1/ρ of the prox."""
        if not (step >= 0 and math.isfinite(step)):
            raise FedcanonError(f"a prox needs a finite step ≥ 0, not {step:g}.")
        if step * self.rho >= 1:
            raise FedcanonError(
                f"{type(self).__name__} is ρ-weakly convex with ρ = {self.rho:.4g}: its prox needs "
                f"a step below 1/ρ = {1 / self.rho:.4g}, but the step is {step:.4g}. "
                "Use a smaller step or a penalty with less curvature."
            )

    def subgradient_bound(self, shape: Shape) -> float:
        """B = sup ‖h'(x)‖² over all x of this shape: the B_h of the theorems."""
        return math.inf

    def penalised(self, x: Tensor) -> list[Tensor]:
        """The parts of ``x`` that carry a penalty, to read."""
        return [x]

    def zeros(self, x: Tensor) -> tuple[int, int]:
        """How many penalised entries of ``x`` are exactly zero, and how many there are."""
        parts = self.penalised(x)
        count = sum(part.numel() for part in parts)
        return count - sum(int(part.count_nonzero()) for part in parts), count


def require_above(penalty: Penalty, field: str, bound: float, or_equal: bool = False) -> None:
    """Refuse a parameter that is not finite and above ``bound`` (or equal to it, where allowed)."""
    number = getattr(penalty, field)
    if not (math.isfinite(number) and (number >= bound if or_equal else number > bound)):
        relation = "at least" if or_equal else "above"
        raise FedcanonError(
            f"{type(penalty).__name__} needs a finite {field} {relation} {bound:g}, not {number:g}."
        )


def spoilt(x: Tensor) -> bool:
    """Whether ``x`` holds a NaN or an infinity; if so all of it becomes NaN.

    For proxes in which every entry depends on every other one and whose solver needs finite input.
    """
    if bool(x.isfinite().all()):
        return False
    x.fill_(math.nan)
    return True
