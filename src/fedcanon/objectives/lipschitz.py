"""How curved a loss is: estimates of the smoothness L."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from fedcanon.errors import FedcanonError
from fedcanon.objectives.base import Objective
from fedcanon.objectives.problem import Problem

MOST_CLIENTS = 10
"""How many clients an estimate of L looks at; all if there are no more."""

MOST_SAMPLES = 512
"""How many samples of a network's client it looks at; all if there are no more."""


def curvature(
    objective: Objective | Problem,
    x: Tensor,
    rng: np.random.Generator,
    iterations: int = 100,
    tolerance: float = 1e-4,
) -> float:
    """Largest absolute eigenvalue of the Hessian at a point, by power iteration.

    Hessian-vector products are central differences of exact gradients, so every objective will do.
    An iteration takes two gradients.

    Args:
        objective: A function with exact gradients.
        x: The point.
        rng: Draws the vector to begin with.
        iterations: The most iterations to make.
        tolerance: The relative growth of the eigenvalue at which to stop. It can only grow, but for
            rounding errors: where they are larger than the growth, more iterations are in vain.

    Examples:
        >>> from fedcanon.objectives import Quadratic
        >>> f = Quadratic(torch.tensor([1.0, 3.0]), torch.zeros(2))
        >>> round(curvature(f, torch.zeros(2), np.random.default_rng(0)), 2)
        3.0
    """

    def gradient(point: Tensor) -> Tensor:
        return objective.value_and_gradient(point)[1]

    v = torch.from_numpy(rng.standard_normal(len(x))).to(x)
    v /= v.norm()
    base = torch.finfo(x.dtype).eps ** (1 / 3) * (1 + float(x.norm()))
    estimate = 0.0
    for _ in range(iterations):
        # Where the curvature is large it changes over a short distance.
        width = base / max(1.0, estimate) ** 0.5
        product = (gradient(x + width * v) - gradient(x - width * v)) / (2 * width)
        last, estimate = estimate, float(product.norm())
        if estimate == 0:
            break
        v = product / estimate
        if estimate - last <= tolerance * estimate:
            return max(last, estimate)
    return estimate


def smoothness(
    problem: Problem,
    rng: np.random.Generator,
    clients: int = MOST_CLIENTS,
    samples: int = MOST_SAMPLES,
) -> float:
    """An estimate of L: the largest curvature of any f_i at the starting point.

    The Hessian of a neural network changes as it trains, so there the estimate is a starting point,
    not a bound, and some of the samples are enough for it.

    Args:
        problem: The problem.
        rng: Draws the clients, and the vectors to begin with.
        clients: How many clients to look at; all if there are no more.
        samples: How many samples of a network's client to look at; all if there are no more.

    Raises:
        FedcanonError: There is no finite curvature above 0 at the starting point.
    """
    count = len(problem.clients)
    chosen = rng.choice(count, size=min(clients, count), replace=False)

    def curvature_of(client: Objective) -> float:
        some = client.over_some(samples, rng)
        # Samples that are left out make a larger difference than the tolerance.
        return curvature(some, problem.start, rng, tolerance=1e-4 if some is client else 1e-3)

    largest = max(curvature_of(problem.clients[i]) for i in chosen)
    if not (largest > 0 and math.isfinite(largest)):
        raise FedcanonError(
            "the smoothness L could not be estimated at the starting point: set alpha and beta."
        )
    return largest
