"""A dataset spread over ten heterogeneous clients, solved by FedCanon+ to high accuracy."""

import numpy as np
import torch

from fedcanon import FedCanonPlus, Federation, Logistic, Problem, fit
from fedcanon.data import partition
from fedcanon.objectives import curvature


def spread(X, y, *, intercept, weights="samples", spec="dirichlet:0.2"):
    rng = np.random.default_rng(0)
    parts = [p.numpy() for p in partition(spec, torch.from_numpy(y.astype(np.int64)), 10, rng)]
    clients = [Logistic(X[part], y[part], intercept=intercept) for part in parts]
    start = torch.zeros(clients[0].layout.size, dtype=torch.float64)
    return Problem(clients, start, [float(len(part)) for part in parts])


def solve(problem, penalty, *, speed, K, tolerance, rounds, start=None):
    """FedCanon+ with α = βK = speed/L until ‖G^α‖ is below the tolerance."""
    if start is not None:
        problem = Problem(problem.clients, start, problem.weights)
    L = curvature(problem, torch.zeros_like(problem.start), np.random.default_rng(0))
    alpha = speed / L
    federation = Federation(problem, FedCanonPlus(beta=alpha / K, local_steps=K), penalty)
    result = fit(
        federation,
        rounds,
        evaluate_every=20,
        gradient=True,
        gradient_step=alpha,
        gradient_tolerance=tolerance,
    )
    assert result.last.gradient_norm <= tolerance
    return result.vector
