"""An audit: an attacker who sees all released sums tells whether a client took part.

From how often it is right follows a lower bound on ε, with 95 % confidence. For the real code it
must stay below the claimed ε. For the form in which clients keep their noise, whose claim would be
false, the same attacker must find more: otherwise the audit would prove nothing.
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.stats import beta

from fedcanon import FedCanonPlus, Federation, Quadratic
from fedcanon.objectives import Problem
from fedcanon.penalties import Zero
from fedcanon.privacy import ClientPrivacy

ROUNDS, LEVEL, NOISE, DELTA = 16, 16.0, 4.0, 1e-5
CLAIMED = 4.38
FLAT = 1e-9
"""The curvature of losses whose gradient is practically constant."""


def federation(present: bool) -> Federation:
    """Two clients in one dimension, of which the target's gradient is 16 times the clip."""
    slopes = [0.0, LEVEL if present else 0.0]
    curvature = torch.tensor([FLAT], dtype=torch.float64)
    clients = [
        Quadratic(curvature, torch.tensor([-slope / FLAT], dtype=torch.float64)) for slope in slopes
    ]
    problem = Problem(clients, torch.zeros(1, dtype=torch.float64))
    algorithm = FedCanonPlus(alpha=1e-3, beta=1e-3, local_steps=1)
    privacy = ClientPrivacy(clip=1.0, noise=NOISE, delta=DELTA, forgetting=0.0)
    return Federation(problem, algorithm, Zero(), privacy=privacy)


def released(present: bool, trials: int) -> np.ndarray:
    """What each round adds to N·e, a row for each trial."""
    rows = np.empty((trials, ROUNDS))
    for row in rows:
        run, before = federation(present), 0.0
        for t in range(ROUNDS):
            run.step()
            now = 2 * float(run.server["e"])
            row[t], before = now - before, now
    return rows


def kept_noise(present: bool, trials: int) -> np.ndarray:
    """N·e after every round if each of 200 clients moves by its increment with a share of noise."""
    rng, N, rows = np.random.default_rng(present), 200, []
    v = np.zeros((N, trials))
    for _ in range(ROUNDS):
        m = np.zeros((N, 1))
        m[0] = LEVEL
        u = np.clip(m - v, -1, 1)
        u[0] *= present
        v += u + rng.normal(size=u.shape) * NOISE / np.sqrt(N)
        rows.append(v.sum(0))
    return np.array(rows).T


def bound(inside: np.ndarray, outside: np.ndarray, threshold: float) -> float:
    """A lower bound on ε that holds with 95 % confidence (Clopper and Pearson)."""
    n, hits, false = len(inside), (inside > threshold).sum(), (outside > threshold).sum()
    least = beta.ppf(0.025, hits, n - hits + 1) if hits else 0.0
    most = beta.ppf(0.975, false + 1, n - false) if false < n else 1.0
    return float(np.log((least - DELTA) / most)) if least > DELTA else -np.inf


def audited(released: Callable[[bool, int], np.ndarray], trials: int) -> float:
    """The bound of an attacker who has learned on other samples how to tell the two apart."""
    learned = [released(present, trials // 3) for present in (True, False)]
    weights = (learned[0].mean(0) - learned[1].mean(0)) / learned[1].var(0)
    scores = [sample @ weights for sample in learned]
    tried = np.quantile(np.concatenate(scores), np.linspace(0.01, 0.99, 60))
    threshold = max(tried, key=lambda t: bound(*scores, t))
    return bound(*(released(k, trials) @ weights for k in (True, False)), threshold)


@pytest.mark.slow
@pytest.mark.parametrize("trials", [150, pytest.param(600, marks=pytest.mark.exhaustive)])
def test_the_audit_never_finds_more_than_is_claimed(trials):
    assert 0 < audited(released, trials) < CLAIMED


def test_the_audit_finds_out_clients_that_keep_their_noise():
    assert audited(kept_noise, trials=3000) > CLAIMED


def test_what_is_claimed():
    privacy = ClientPrivacy(clip=1.0, noise=NOISE, delta=DELTA)
    assert privacy.spent(ROUNDS) == pytest.approx(CLAIMED, abs=0.01)
