"""Unlike clients whose constants are known: what the theorems are measured on.

Each client has f_i(x) = mean_j ½ (x − p_ij)ᵀ A_i (x − p_ij). Its smoothness is the largest
eigenvalue of A_i, and the gradient of a sample differs from ∇f_i by A_i(p_ij − p̄_i), whatever x is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedcanon.layout import Layout
from fedcanon.objectives import Objective, Problem
from fedcanon.penalties import Penalty


@dataclass(frozen=True)
class Scattered(Objective):
    """f(x) = mean_j ½ (x − p_j)ᵀ A (x − p_j) over the rows p_j of ``points``."""

    A: Tensor
    points: Tensor

    @cached_property
    def layout(self) -> Layout:  # type: ignore[override]
        """One slot named ``x``."""
        return Layout.of([("x", (self.points.shape[1],))])

    @property
    def samples(self) -> int:  # type: ignore[override]
        """The number of points."""
        return len(self.points)

    @cached_property
    def centre(self) -> Tensor:
        """The mean of the points, where f is least."""
        return self.points.mean(0)

    @cached_property
    def least(self) -> float:
        """f at the centre."""
        residuals = self.points - self.centre
        return 0.5 * float(((residuals @ self.A) * residuals).sum(1).mean())

    @property
    def variance(self) -> float:
        """E‖g(x) − ∇f(x)‖² for a single sample, the same at every x."""
        return float(((self.points - self.centre) @ self.A).square().sum(1).mean())

    def value(self, x: Tensor) -> float:
        residual = x - self.centre
        return 0.5 * float(residual @ self.A @ residual) + self.least

    def value_and_gradient(self, x: Tensor) -> tuple[float, Tensor]:
        return self.value(x), self.gradient(x, None)

    def gradient(self, x: Tensor, batch: Tensor | None) -> Tensor:
        return self.A @ (x - (self.centre if batch is None else self.points[batch].mean(0)))


def unlike_matrix(rng: np.random.Generator, d: int, smallest: float) -> Tensor:
    """A symmetric matrix with eigenvalues from ``smallest`` to 1 in random directions."""
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    A = basis @ np.diag(np.linspace(smallest, 1, d)) @ basis.T
    return torch.from_numpy((A + A.T) / 2)


def scattered_problem(clients: int, samples: int, d: int) -> Problem:
    """Clients with matrices and centres of their own, eigenvalues between 0.2 and 1."""
    rng = np.random.default_rng(0)
    objectives = []
    for _ in range(clients):
        A = unlike_matrix(rng, d, 0.2)
        centre = 2 * rng.standard_normal(d)
        points = centre + 0.5 * rng.standard_normal((samples, d))
        objectives.append(Scattered(A, torch.from_numpy(points)))
    return Problem(objectives, torch.from_numpy(3 * rng.standard_normal(d)))


def scattered(problem: Problem) -> list[Scattered]:
    """The clients of a problem from ``scattered_problem``."""
    return [client for client in problem.clients if isinstance(client, Scattered)]


def smoothness(problem: Problem) -> float:
    """L: the largest eigenvalue of any A_i."""
    return max(float(torch.linalg.eigvalsh(client.A).max()) for client in scattered(problem))


def convexity(problem: Problem) -> float:
    """μ of f alone: the smallest eigenvalue of the mean of all A_i."""
    mean = torch.stack([client.A for client in scattered(problem)]).mean(0)
    return float(torch.linalg.eigvalsh(mean).min())


def variance(problem: Problem) -> float:
    """σ²: the largest variance of any client."""
    return max(client.variance for client in scattered(problem))


def least_value(problem: Problem, penalty: Penalty) -> float:
    """φ*, the smallest value of φ = f + h, where φ is convex."""
    z = minimiser(problem, penalty, 0.5)
    return problem.value(z) + penalty.value(z)


def minimiser(problem: Problem, penalty: Penalty, step: float) -> Tensor:
    """argmin f + h by proximal gradient steps to the last digit, where f + h is convex."""
    z = problem.start
    for _ in range(1000):
        z = penalty.prox(z - step * problem.value_and_gradient(z)[1], step)
    return z
