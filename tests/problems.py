"""Small heterogeneous problems in float64, on which exactness can be seen."""

import numpy as np
import torch

from fedcanon import Logistic, Problem, Quadratic

DTYPE = torch.float64


def vector(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=DTYPE)


def golden() -> Problem:
    """The two-client problem of the golden values."""
    first = Quadratic(vector(1, 2), vector(1, -1))
    second = Quadratic(vector(3, 1), vector(-2, 2))
    return Problem([first, second], vector(0.5, 0.5))


def quadratics(clients: int = 5, d: int = 10, seed: int = 0) -> Problem:
    """f_i = ½(x − b_i)ᵀA_i(x − b_i), eigenvalues in [0.1, 1], b_i far apart: L = 1."""
    rng = np.random.default_rng(seed)
    objectives = []
    for _ in range(clients):
        basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
        A = basis @ np.diag(np.linspace(0.1, 1, d)) @ basis.T
        objectives.append(
            Quadratic(torch.from_numpy((A + A.T) / 2), torch.from_numpy(3 * rng.standard_normal(d)))
        )
    return Problem(objectives, torch.from_numpy(rng.standard_normal(d)))


def logistics(clients: int = 10, d: int = 40, samples: int = 100, seed: int = 0) -> Problem:
    """Logistic losses whose clients differ in features and in labelling."""
    rng = np.random.default_rng(seed)
    objectives = []
    for _ in range(clients):
        X = rng.standard_normal((samples, d)) + 0.5 * rng.standard_normal(d)
        w = rng.standard_normal(d)
        y = np.where(X @ w + rng.standard_normal(samples) > 0, 1, -1)
        objectives.append(Logistic(X, y, intercept=False))
    return Problem(objectives, torch.zeros(d, dtype=DTYPE))


def smoothness(problem: Problem) -> float:
    """L = max_i λ_max(∇²f_i), exact for quadratics and at 0 (where it is largest) for logistics."""
    largest = []
    for client in problem.clients:
        if isinstance(client, Quadratic):
            largest.append(float(torch.linalg.eigvalsh(client.A).max()))
        else:
            X = client._x
            largest.append(float(np.linalg.eigvalsh(X.T @ X / (4 * len(X))).max()))
    return max(largest)
