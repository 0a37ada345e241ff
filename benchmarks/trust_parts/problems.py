"""Linear models over ten clients, their steps and their exact optima."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from comparison.convex_problems import Array, Data
from scipy import sparse
from torch import Tensor

from fedcanon import Federation, Logistic, Problem
from fedcanon.algorithms import Newton
from fedcanon.data import partition
from fedcanon.penalties import Penalty, Ridge, Sum, WeightedL1
from fedcanon.robustness import flipped
from fedcanon.runs.measures import stationarity, stationarity_step

CLIENTS = 10
EXACT = 1e-9
"""The largest ‖G‖ of an optimum."""


@dataclass(frozen=True)
class Divided:
    """Samples divided among clients, and the regulariser of their model.

    Args:
        data: All samples.
        parts: The rows of every client.
        penalty: The regulariser h.
        weighted: Whether clients are weighted by their samples; otherwise all alike.
        ridge: The part of h that is as smooth as a loss; step sizes count it.
    """

    data: Data
    parts: Sequence[Array]
    penalty: Penalty
    weighted: bool = False
    ridge: float = 0.0

    def problem(self, flip: Collection[int] = ()) -> Problem:
        """Return the problem, in which the labels of some clients are flipped."""
        clients = [
            Logistic(self.data.X[part], flipped(labels, 2) if i in flip else labels)
            for i, part in enumerate(self.parts)
            for labels in [torch.from_numpy(self.data.y[part].astype(int))]
        ]
        start = torch.zeros(self.data.X.shape[1] + 1, dtype=torch.float64)
        sizes = [len(part) for part in self.parts]
        return Problem(clients, start, sizes if self.weighted else ())

    def without(self, bad: Collection[int]) -> Divided:
        """Return the same without some clients."""
        honest = [part for i, part in enumerate(self.parts) if i not in bad]
        return replace(self, parts=honest)

    @property
    def smoothness(self) -> tuple[float, float]:
        """L of the mean loss, and the largest L_i of a client, both with the ridge."""
        squares = [_square(self.data.X[part]) for part in self.parts]
        shares = [len(part) if self.weighted else 1 for part in self.parts]
        mean = np.average(squares, axis=0, weights=shares)
        largest = max(np.linalg.norm(square, 2) for square in squares)
        return float(np.linalg.norm(mean, 2)) + self.ridge, float(largest) + self.ridge

    def objective(self, z: Tensor) -> float:
        """f(z) + h(z)."""
        return self.problem().value(z) + self.penalty.value(z)

    def optimum(self) -> Tensor:
        """Return argmin f + h by Newton, checked by the stationarity of the result."""
        problem = self.problem()
        federation = Federation(problem, Newton(), self.penalty)
        for _ in range(30):
            federation.step()
        z = federation.model
        gradient = problem.value_and_gradient(z)[1]
        norm = stationarity(self.penalty, z, gradient, stationarity_step(self.penalty))
        assert norm <= EXACT, f"‖G‖ = {norm:.1e} at what should be the optimum"
        return z


def _square(X: Array | sparse.csr_array) -> Array:
    """AᵀA/(4n), where A has a column of ones besides X: a bound on the logistic Hessian."""
    dense = X.toarray() if sparse.issparse(X) else X
    A = np.hstack([dense, np.ones((len(dense), 1))])
    return A.T @ A / (4 * len(A))


def divide(data: Data, by: str, seed: int, clients: int = CLIENTS) -> list[Array]:
    """Return the rows of every client."""
    rng = np.random.default_rng(seed)
    parts = partition(by, torch.from_numpy(np.asarray(data.y)), clients, rng)
    return [part.numpy() for part in parts]


def lasso(kappa: float, features: int, ridge: float = 0.0) -> Penalty:
    """Return κ‖w‖₁ + (ridge/2)‖(w, b)‖²; the intercept b is free of the first."""
    l1 = WeightedL1(kappa, [1.0] * features + [0.0])
    return Sum((l1, Ridge(ridge))) if ridge else l1


def some_rows(data: Data, rows: int, seed: int = 0) -> Data:
    """Return so many samples, drawn at random."""
    chosen = np.random.default_rng(seed).permutation(len(data.y))[:rows]
    return replace(data, X=data.X[chosen], y=data.y[chosen])
