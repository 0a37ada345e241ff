"""The subproblem of proximal Newton: a quadratic and a penalty that is known by its prox."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fedcanon.algorithms.base import Prox
from fedcanon.algorithms.step_rules import Facts, safe_step

ACCURACY = 1e-12
"""The residual at which a subproblem counts as solved, relative to the one at its start."""

MOST_POINTS, MOST_SHORT_POINTS = 60, 20
"""Proximal-point steps after which the best point so far is returned.

They are short if h is not convex, and then it is better to look at the true f again than to go on.
"""

MOST_STEPS = 30
"""Newton steps in one proximal-point step; what is left is made up for by the next one."""

LONGEST = 1e8
"""The largest step σ of the proximal-point method, in units of 1/‖H‖: rounding grows with it."""


class _Point(NamedTuple):
    """A point v, the argument y and the result p of a prox there, and v − p."""

    v: Tensor
    y: Tensor
    p: Tensor
    residual: Tensor

    @property
    def error(self) -> float:
        return float(self.residual.norm())


class QuadraticModel:
    """m(x) = ⟨g, x − z⟩ + ½(x − z)ᵀH(x − z) + h(x), with any h that has a prox.

    Two methods alternate. The first solves x = prox_{ah}(x − a∇q(x)), where q is the quadratic, by
    Newton's method. It ends after a few steps, but works only near the solution. The second is the
    proximal-point method x ← argmin m + ‖· − x‖²/(2σ) with growing σ, which leads there from z. Its
    steps are solved by Newton's method too, which for them minimises a smooth convex function.

    Newton's method needs the Jacobian of the prox, which is found by d differences, or by one if h
    is separable. It is zero outside of a small block if the solution is sparse.

    If h is not convex, σ stays below 1/ρ, and the result has m(x) ≤ m(z) but may not be stationary.

    Li, Sun, Toh 2018: "A Highly Efficient Semismooth Newton Augmented Lagrangian Method for Solving
    Lasso Problems".

    Args:
        z: The centre, in double precision.
        gradient: g.
        hessian: H, symmetric and without negative eigenvalues, but maybe singular.
        prox: The prox of h.
    """

    def __init__(self, z: Tensor, gradient: Tensor, hessian: Tensor, prox: Prox) -> None:
        self._z, self._g, self._H, self._prox = z, gradient, hessian, prox
        self._norm = float(hessian.norm()) or 1.0  # at least the largest eigenvalue
        self._rounding = torch.finfo(z.dtype).eps

    def minimise(self) -> Tensor:
        """Return the minimiser, or a lower point if h is not convex; it is the result of a prox."""
        penalty = self._prox.penalty
        step = safe_step(Facts(self._norm, penalty.rho))
        longest = LONGEST / self._norm if penalty.in_theory else step
        if penalty.rho:
            longest = min(longest, 0.9 / penalty.rho)
        convex = penalty.in_theory and not penalty.rho
        sigma = min(len(self._z) / (float(self._H.trace()) or 1.0), longest)
        accuracy = ACCURACY * self._at(self._z, self._z, step).error
        x = self._z
        for _ in range(MOST_POINTS if convex else MOST_SHORT_POINTS):
            x, solved = self._polish(x, step, accuracy)
            if solved:
                break
            nearer = self._proximal_point(x, sigma)
            if not self._is_lower(nearer, self._value(x)):
                break
            x, sigma = nearer, min(10 * sigma, longest)
        return x

    def _polish(self, x: Tensor, step: float, accuracy: float) -> tuple[Tensor, bool]:
        """Return prox_{ah}(x − a∇q(x)) after Newton steps, and whether it solves the subproblem."""
        point = self._at(x, x, step)
        while point.error > max(accuracy, 8 * self._rounding * self._length(point.p)):
            x = point.v + self._direction(point, step, moving=True)
            x = self._at(x, x, step).p
            following = self._at(x, x, step)
            good = following.error <= point.error / 2
            if not (good and self._is_lower(following.p, self._value(point.p))):
                return point.p, False
            point = following
        return point.p, True

    def _proximal_point(self, x: Tensor, sigma: float) -> Tensor:
        """Return argmin m + ‖· − x‖²/(2σ), nearly.

        v = prox_{σh}(x − σ∇q(v)) is solved for v, which is to minimise a convex function whose
        gradient is H(v − prox). A step must not lead far beyond the minimum on its line.
        """
        point = self._at(x, x, sigma)
        for _ in range(MOST_STEPS):
            slack = sigma * (float(self._g.norm()) + self._norm * self._length(point.v))
            enough = 0.1 * float((x - point.p).norm()) / (sigma * self._norm)
            if point.error <= max(enough, 16 * self._rounding * slack):
                break
            direction = self._direction(point, sigma, moving=False)
            curved = self._H @ direction
            limit, length = 0.25 * abs(float(point.residual @ curved)), 1.0
            following = self._at(point.v + direction, x, sigma)
            while float(following.residual @ curved) > limit and length > 1e-6:
                length /= 2
                following = self._at(point.v + length * direction, x, sigma)
            point = following
        return point.p

    def _at(self, v: Tensor, anchor: Tensor, step: float) -> _Point:
        y = anchor - step * (self._g + self._H @ (v - self._z))
        p = self._prox(y, step)
        return _Point(v, y, p, v - p)

    def _direction(self, point: _Point, step: float, *, moving: bool) -> Tensor:
        """Return the Newton step for v = prox_{ah}(anchor − a∇q(v)); a ``moving`` anchor is v."""
        J = self._jacobian(point, step)
        direction = -point.residual
        active = J.any(1).nonzero()[:, 0]
        J, H = J[active][:, active], self._H[active]
        inactive = direction.clone()
        inactive[active] = 0.0
        right = direction[active] - step * (J @ (H @ inactive))
        matrix = step * J @ H[:, active]
        if moving:
            matrix -= J
            matrix.diagonal().add_(1e-12)  # where H is singular and h is flat
        matrix.diagonal().add_(1.0)
        direction[active] = torch.linalg.solve_ex(matrix, right)[0]
        return direction

    def _jacobian(self, point: _Point, step: float) -> Tensor:
        """Return the Jacobian of the prox at y, which is symmetric, by differences."""
        size = point.y.abs()
        widths = 1e-6 * torch.maximum(size, 1e-4 * (size.max() or torch.ones_like(size[0])))
        if self._prox.penalty.is_separable:
            return ((self._prox(point.y + widths, step) - point.p) / widths).diag()
        moved = point.y + widths.diag()
        for j in range(len(moved)):
            moved[j] = self._prox(moved[j], step)
        return (moved - point.p) / widths[:, None]

    def _value(self, x: Tensor) -> float:
        d = x - self._z
        return float(d @ (self._g + self._H @ d / 2)) + self._prox.penalty.value(x)

    def _is_lower(self, x: Tensor, value: float) -> bool:
        """Tell whether m(x) is at most ``value``, but for rounding."""
        return self._value(x) <= value + 1e-12 * abs(value)

    def _length(self, x: Tensor) -> float:
        """Return ‖x‖ + ‖x − z‖, the size of the numbers that are rounded."""
        return float(x.norm()) + float((x - self._z).norm())
