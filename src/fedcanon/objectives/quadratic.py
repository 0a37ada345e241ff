"""Quadratic objectives, for theory and tests."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from fedcanon.layout import Layout
from fedcanon.objectives.base import Objective


@dataclass(frozen=True)
class Quadratic(Objective):
    """f(x) = ½ (x − b)ᵀ A (x − b).

    Args:
        A: A symmetric matrix, or the vector of the diagonal of a diagonal one.
        b: The minimiser.
    """

    A: Tensor
    b: Tensor

    samples = 1
    draws = False
    has_hessian = True

    @cached_property
    def layout(self) -> Layout:  # type: ignore[override]
        """One slot named ``x``."""
        return Layout.of([("x", tuple(self.b.shape))])

    def value(self, x: Tensor) -> float:
        return self.value_and_gradient(x)[0]

    def value_and_gradient(self, x: Tensor) -> tuple[float, Tensor]:
        gradient = self.gradient(x)
        return 0.5 * float((x - self.b) @ gradient), gradient

    def gradient(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        residual = x - self.b
        return self.A @ residual if self.A.ndim == 2 else self.A * residual

    def hessian(self, x: Tensor) -> Tensor:
        return self.A.clone() if self.A.ndim == 2 else self.A.diag()
