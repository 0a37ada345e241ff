"""The contract of a penalty h."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np
from torch import Tensor

from fedcanon.errors import FedcanonError

Shape = tuple[int, ...]

LARGEST = 1e30
"""The largest parameter of a penalty: its square is a number, and so is it in single precision."""


class Penalty(ABC):
    """A regulariser h(x), known through its value and its proximal operator.

        prox_{ah}(y) = argmin_x  h(x) + ‖x − y‖²/(2a)

    h is ρ-weakly convex when h + (ρ/2)‖·‖² is convex; the prox is then single valued for
    0 < a < 1/ρ and Lipschitz with constant 1/(1 − aρ). A penalty works on a tensor of any shape
    and on any device; structured penalties give the shape a meaning (rows are groups, a matrix has
    singular values). Penalties are frozen dataclasses: their fields are their parameters.

    A new penalty writes ``value`` and ``_prox_``. It overrides ``rho`` and ``subgradient_bound``
    where the defaults (convex, unbounded) do not hold, and ``check_shape`` where it does not fit
    tensors of every shape.
    """

    @property
    def in_theory(self) -> bool:
        """False for functions that no ρ makes convex (ℓ0, cardinality): the prox is a heuristic."""
        return True

    @property
    def rho(self) -> float:
        """The weak-convexity constant ρ; 0 for a convex penalty."""
        return 0.0

    @property
    def is_separable(self) -> bool:
        """Whether h is a sum over single coordinates, so that each is moved by itself."""
        return False

    @abstractmethod
    def value(self, x: Tensor) -> float:
        """h(x), which is infinite outside the set of a constraint and 0 for an empty ``x``."""

    @abstractmethod
    def _prox_(self, x: Tensor, step: float) -> None:
        """Overwrite ``x`` with prox_{step·h}(x).

        Args:
            x: A tensor of floating-point numbers with at least one entry, of a shape that fits.
            step: Above 0 and below 1/ρ.
        """

    def prox_(self, x: Tensor, step: float) -> Tensor:
        """Overwrite ``x`` with prox_{step·h}(x) and return it.

        Args:
            x: A tensor of floating-point numbers. An empty one stays as it is.
            step: The a of prox_{ah}, with 0 ≤ a < 1/ρ. A step of 0 changes nothing.

        Raises:
            FedcanonError: The step is outside the domain of the prox, the shape does not fit the
                penalty, or the entries are integers.
        """
        self.check_step(step)
        self.check_shape(tuple(x.shape))
        if not x.is_floating_point():
            raise FedcanonError(
                f"a prox needs a tensor of floating-point numbers, not of {x.dtype}: convert it "
                "with x.double()."
            )
        if step > 0 and x.numel() > 0:
            self._prox_(x, step)
        return x

    def prox(self, x: Tensor, step: float) -> Tensor:
        """prox_{step·h}(x) as a new tensor; arguments and errors are those of ``prox_``."""
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

    def check_shape(self, shape: Shape) -> None:  # noqa: B027  # most penalties fit every shape
        """Refuse tensors of a shape that the parameters of the penalty do not fit."""

    def subgradient_bound(self, shape: Shape) -> float:
        """B = sup ‖h'(x)‖² over all x of this shape: the B_h of the theorems."""
        return math.inf

    def penalised(self, x: Tensor) -> list[Tensor]:
        """The parts of ``x`` that carry a penalty, to be read and not to be changed."""
        return [x]

    def zeros(self, x: Tensor) -> tuple[int, int]:
        """How many penalised entries of ``x`` are exactly zero, and how many there are."""
        parts = self.penalised(x)
        count = sum(part.numel() for part in parts)
        return count - sum(int(part.count_nonzero()) for part in parts), count


def require_above(penalty: Penalty, field: str, bound: float, or_equal: bool = False) -> None:
    """Refuse a parameter that is too small or too large.

    Args:
        penalty: The penalty whose parameter is looked at.
        field: The name of the parameter.
        bound: What the parameter must be above; it may be as large as ``LARGEST``.
        or_equal: Whether the parameter may also be equal to the bound.
    """
    number = getattr(penalty, field)
    name = type(penalty).__name__
    if not (math.isfinite(number) and (number >= bound if or_equal else number > bound)):
        relation = "at least" if or_equal else "above"
        raise FedcanonError(f"{name} needs a finite {field} {relation} {bound:g}, not {number:g}.")
    if number > LARGEST:
        raise FedcanonError(f"{name} needs a {field} of at most {LARGEST:g}, not {number:g}.")


def weights_of(penalty: Penalty, numbers: object) -> tuple[float, ...]:
    """The weights of a penalty, which may come as a sequence, an array or a tensor.

    Args:
        penalty: The penalty that they belong to, which a refusal names.
        numbers: One weight after the other.

    Raises:
        FedcanonError: They are not numbers, or one of them is negative or not finite.
    """
    if isinstance(numbers, Tensor):
        numbers = numbers.detach().cpu().double()
    try:
        weights = np.asarray(numbers, dtype=np.float64).ravel()
    except (TypeError, ValueError):
        weights = np.array([math.nan])
    if not bool(((weights >= 0) & (weights <= LARGEST)).all()):
        raise FedcanonError(
            f"{type(penalty).__name__} needs weights that are numbers, at least 0 and at most "
            f"{LARGEST:g}: give a list, an array or a tensor of them."
        )
    return tuple(weights.tolist())


def spoilt(x: Tensor) -> bool:
    """Whether ``x`` holds a NaN or an infinity; if so all of it becomes NaN.

    For proxes in which every entry depends on every other one and whose solver needs finite input.
    """
    if bool(x.isfinite().all()):
        return False
    x.fill_(math.nan)
    return True
