"""An audit: an attacker who sees all released sums tells whether a client took part.

From how often it is right follows a lower bound on ε. The real code must stay below what it claims.
The form in which clients keep the noise of their uploads, whose claim would be false, is attacked
beside it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import beta

from fedcanon import FedCanonPlus, Federation, Problem, Quadratic
from fedcanon.penalties import Zero
from fedcanon.privacy import ClientPrivacy

ROUNDS, NOISE, DELTA = 16, 4.0, 1e-5
PRIVACY = ClientPrivacy(clip=1.0, noise=NOISE, delta=DELTA, forgetting=0.0)
FLAT = 1e-9
"""The curvature of losses whose gradient is practically constant."""
OTHERS = 200
"""Clients of the form in which noise is kept."""
Array = NDArray[np.float64]
Releases = Callable[[bool, int], Array]
"""What is released with the client or without it, a row for each of so many trials."""


def product(level: float) -> Releases:
    """The library: two clients in one dimension, of which one has a gradient of ``level``·τ."""

    def federation(present: bool) -> Federation:
        curvature = torch.tensor([FLAT], dtype=torch.float64)
        slopes = (0.0, level if present else 0.0)
        clients = [Quadratic(curvature, curvature.new_tensor([-slope / FLAT])) for slope in slopes]
        algorithm = FedCanonPlus(alpha=1e-3, beta=1e-3, local_steps=1)
        problem = Problem(clients, torch.zeros(1, dtype=torch.float64))
        return Federation(problem, algorithm, Zero(), privacy=PRIVACY)

    def released(present: bool, trials: int) -> Array:
        rows = np.empty((trials, ROUNDS))
        for row in rows:
            run = federation(present)
            for t in range(ROUNDS):
                run.step()
                row[t] = 2 * float(run.server["e"])
        return np.diff(rows, prepend=0)

    return released


def kept_noise(level: float) -> Releases:
    """The form that is not offered: every client moves by its increment and a share of noise."""

    def released(present: bool, trials: int) -> Array:
        rng, v, rows = np.random.default_rng(), np.zeros((OTHERS, trials)), []
        for _ in range(ROUNDS):
            m = np.zeros((OTHERS, 1))
            m[0] = level
            u = np.clip(m - v, -1, 1)
            u[0] *= present
            v += u + rng.normal(size=u.shape) * NOISE / np.sqrt(OTHERS)
            rows.append(v.sum(0))
        return np.array(rows).T

    return released


def found_epsilon(released: Releases, trials: int) -> float:
    """Return a lower bound on ε that holds with 95 % confidence.

    The attacker learns on other samples how to weigh the rounds and where to put its threshold.
    """
    learned = [released(present, trials // 3) for present in (True, False)]
    weights = (learned[0].mean(0) - learned[1].mean(0)) / learned[1].var(0)
    scores = [sample @ weights for sample in learned]
    tried = np.quantile(np.concatenate(scores), np.linspace(0.01, 0.99, 60))
    threshold = max(tried, key=lambda t: _bound(*scores, t))
    return max(0.0, _bound(*(released(k, trials) @ weights for k in (True, False)), threshold))


def largest(trials: int) -> float:
    """Return the bound of an attacker who is always right: so many trials can show no more."""
    return _bound(np.ones(trials), np.zeros(trials), 0.5)


def _bound(inside: Array, outside: Array, threshold: float) -> float:
    """The bound of Clopper and Pearson, from how often a threshold is exceeded."""
    n, hits, false = len(inside), (inside > threshold).sum(), (outside > threshold).sum()
    least = beta.ppf(0.025, hits, n - hits + 1) if hits else 0.0
    most = beta.ppf(0.975, false + 1, n - false) if false < n else 1.0
    return float(np.log((least - DELTA) / most)) if least > DELTA else -np.inf
