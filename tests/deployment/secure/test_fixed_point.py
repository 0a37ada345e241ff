"""How far FedCanon+ converges in a finite ring, on the breast-cancer data."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

pytest.importorskip("cryptography")

from fedcanon import FedCanonPlus, Federation, Logistic, Problem
from fedcanon.compression import Compressor, Identity
from fedcanon.deployment.secure import ring
from fedcanon.penalties import ElasticNet

CLIENTS, ROUNDS = 10, 800
PENALTY = ElasticNet(0.01, 0.02)


def problem():
    features, labels = load_breast_cancer(return_X_y=True)
    features = StandardScaler().fit_transform(features)
    rng, parts = np.random.default_rng(0), [[] for _ in range(CLIENTS)]
    for label in (0, 1):
        own = rng.permutation(np.flatnonzero(labels == label))
        cuts = (np.cumsum(rng.dirichlet([0.5] * CLIENTS)) * len(own)).astype(int)[:-1]
        for part, some in zip(parts, np.split(own, cuts), strict=True):
            part.extend(some)
    for part in parts:
        while len(part) < 10:
            part.append(max(parts, key=len).pop())
    clients = [Logistic(features[part], labels[part]) for part in parts]
    return Problem(clients, torch.zeros(clients[0].layout.size, dtype=torch.float64))


@dataclass
class Now(Compressor):
    """The fixed point of the current round; all clients are in this process."""

    point: Compressor

    def __call__(self, u, rng):
        return self.point(u, rng)

    def encode(self, u, rng):
        return self.point.encode(u, rng)

    def decode(self, parts, size):
        return self.point.decode(parts, size)

    def contraction(self, size):
        return 1.0


def rounds_to(tolerance, *, shrinking=True, exact=False, participants=None):
    """How many rounds ‖G‖ takes to fall to a tolerance, or None; and ‖G‖ at the end."""
    there, now = problem(), Now(Identity())
    L = 0.25 * float(
        np.linalg.eigvalsh(sum(c._x.T @ c._x / len(c._x) for c in there.clients)).max()
    )
    alpha = 4 / (L / CLIENTS + 0.02)
    method = FedCanonPlus(alpha, alpha / 10, 10)
    federation = Federation(
        there,
        method,
        PENALTY,
        participants=participants,
        compressor=Identity() if exact else now,
    )
    norms = []
    for t in range(ROUNDS):
        norms = [*norms, float(federation.server["b"].norm())][-5:]
        scale = ring.scale_of(federation.rules, CLIENTS, 3, norms if shrinking else [])
        now.point = ring.FixedPoint(scale, CLIENTS)
        federation.step()
        z = federation.model
        gradient = sum(client.full_gradient(z) for client in there.clients) / CLIENTS
        step = 1 / L
        found = float((z - PENALTY.prox(z - step * gradient, step)).norm()) / step
        if found <= tolerance:
            return t + 1, found
    return None, found


@pytest.mark.slow
@pytest.mark.parametrize("participants", [None, 3])
def test_a_shrinking_scale_loses_no_round_and_a_coarse_one_never_arrives(monkeypatch, participants):
    exact, _ = rounds_to(1e-8, exact=True, participants=participants)
    assert exact is not None
    fine, _ = rounds_to(1e-8, participants=participants)
    assert abs(fine - exact) <= 0.05 * exact
    monkeypatch.setattr(ring, "entry_limit", lambda clients: (2**15 - 1) // clients)
    coarse, _ = rounds_to(1e-8, participants=participants)
    assert abs(coarse - exact) <= 0.05 * exact
    fixed, left = rounds_to(1e-8, shrinking=False, participants=participants)
    assert fixed is None
    assert 1e-5 < left < 1e-2
