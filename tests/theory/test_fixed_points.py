"""Which points a round leaves where they are, for every penalty: the statements of docs/theory.md.

The oracle is a stationary point that proximal gradient descent in numpy has found, with α as its
step. Clients are quadratics that differ in curvature and minimiser.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import torch

from fedcanon import FedCanon, FedCanonPlus, Federation, Problem, Quadratic
from fedcanon.algorithms import Newton
from fedcanon.layout import Layout
from fedcanon.penalties import L1, PENALTIES, PerLayer
from tests.penalties.cases import ALL as CASES

IN_THEORY = [name for name, case in CASES.items() if case.penalty.in_theory]
N, K = 3, 5
EXACT = 1e-11
"""Below this a point has not moved."""


@dataclass(frozen=True)
class Solved:
    """A stationary point z of f + h, what clients know there, and the step that found it."""

    problem: Problem
    penalty: PerLayer
    alpha: float
    z: torch.Tensor
    gradients: list[torch.Tensor]

    @property
    def gradient(self) -> torch.Tensor:
        return torch.stack(self.gradients).mean(0)

    def moved(self, algorithm, server, rounds=2) -> float:
        """How far rounds lead away from z, if clients and server start as at z."""
        federation = Federation(self.problem, algorithm, self.penalty)
        zero = torch.zeros_like(self.z)
        known = {"z": self.z, "e": self.gradient, "b": zero, "w": self.z, "v": self.gradient}
        own = {key: known.get(key, value) for key, value in federation.server.items()}
        federation.server = {**own, **server}
        federation.engine.clients = {i: {"v": g} for i, g in enumerate(self.gradients)}
        for _ in range(rounds):
            federation.step()
        return float((federation.model - self.z).abs().max())


def clients_of(d: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(d)
    found = []
    for _ in range(N):
        basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
        found.append((basis * rng.uniform(0.5, 1, d) @ basis.T, 2 * rng.standard_normal(d)))
    return found


def solve(case, alpha: float | None = None) -> Solved:
    alpha = alpha or (min(1.0, 0.5 / case.penalty.rho) if case.penalty.rho else 1.0)
    d = int(np.prod(case.shape))
    penalty = PerLayer(Layout.of([("x", case.shape)]), (("*", case.penalty),))
    clients = clients_of(d)
    z = np.full(d, 0.1)
    for _ in range(20_000):
        gradient = sum(A @ (z - b) for A, b in clients) / N
        last, z = z, penalty.prox(torch.from_numpy(z - alpha * gradient), alpha).numpy()
        if np.abs(z - last).max() <= 1e-15 * max(1.0, np.abs(z).max()):
            break
    assert np.abs(z - last).max() < 1e-12, "the oracle has not converged"
    objectives = [Quadratic(torch.from_numpy(A), torch.from_numpy(b)) for A, b in clients]
    point = torch.from_numpy(z.copy())
    gradients = [torch.from_numpy(A @ (z - b)) for A, b in clients]
    return Solved(Problem(objectives, point), penalty, alpha, point, gradients)


@pytest.fixture(params=CASES)
def solved(request):
    return solve(CASES[request.param])


def test_every_penalty_of_the_registry_has_a_case():
    assert {type(case.penalty) for case in CASES.values()} >= {*PENALTIES.values()}


def test_fedcanon_plus_stays_at_stationary_points(solved):
    assert solved.moved(FedCanonPlus(solved.alpha, 0.2, K), {}) < EXACT


@pytest.mark.parametrize("theta", [1.0, 7.0])
def test_accelerated_fedcanon_plus_stays_at_stationary_points(solved, theta):
    algorithm = FedCanonPlus(solved.alpha, 0.2, K, accelerated=True)
    assert solved.moved(algorithm, {"theta": theta, "curvature": 0.8}) < EXACT


def test_damped_fedcanon_plus_stays_once_its_damping_has_ended(solved):
    assert solved.moved(FedCanonPlus(solved.alpha, 0.2, K, gain=0.2 * K), {}) < EXACT


def test_damped_fedcanon_plus_stays_if_there_is_one_local_step(solved):
    assert solved.moved(FedCanonPlus(solved.alpha, 0.2, 1, gain=0.05), {}) < EXACT


def test_fedcanon_stays_if_there_is_one_local_step(solved):
    assert solved.moved(FedCanon(solved.alpha, 0.2, 1), {}) < EXACT


@pytest.mark.parametrize("name", IN_THEORY)
def test_newton_stays_at_stationary_points(name):
    solved = solve(CASES[name])
    federation = Federation(solved.problem, Newton(), solved.penalty)
    for _ in range(3):
        federation.step()
        assert float((federation.model - solved.z).abs().max()) < 1e-9


L1_CASE = CASES["l1"]


def test_without_damping_ended_damped_fedcanon_plus_leaves_stationary_points():
    solved = solve(L1_CASE, 0.5)
    damped = FedCanonPlus(0.5, 0.2, K, gain=0.25 * 0.2 * K)
    assert solved.moved(damped, {}) > 1e-3


def test_fedcanon_leaves_stationary_points_unless_there_is_no_penalty():
    assert solve(L1_CASE, 0.5).moved(FedCanon(0.5, 0.2, K), {}) > 1e-3
    assert solve(CASES["zero"], 0.5).moved(FedCanon(0.5, 0.2, K), {}) < EXACT


def drift_of_fedcanon(clients, z):
    """∇²f ∇f"""
    return sum(A for A, _ in clients) @ sum(A @ (z - b) for A, b in clients) / N**2


def drift_of_damped(clients, z):
    """(1 − λ)(1/N) Σ ∇²f_i ∇f_i for λ = 1/4"""
    return 0.75 * sum(A @ A @ (z - b) for A, b in clients) / N


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "drift"),
    [
        (lambda beta: FedCanon(0.5, beta, K), drift_of_fedcanon),
        (lambda beta: FedCanonPlus(0.5, beta, K, gain=0.25 * beta * K), drift_of_damped),
    ],
    ids=["FedCanon", "damped FedCanon+"],
)
def test_methods_end_where_their_drifted_gradient_is_stationary(method, drift):
    """0 ∈ ∇f − (β(K − 1)/2)·drift + ∂h to first order in β; ‖G‖ itself is of first order."""
    clients = clients_of(6)
    exact, drifted = [], []
    for beta in (0.04, 0.02, 0.01):
        problem = solve(L1_CASE, 0.5).problem
        federation = Federation(problem, method(beta), L1(0.7))
        for _ in range(400):
            federation.step()
        z = federation.model.numpy()
        gradient = sum(A @ (z - b) for A, b in clients) / N
        correction = beta * (K - 1) / 2 * drift(clients, z)
        for v, norms in ((gradient, exact), (gradient - correction, drifted)):
            again = L1(0.7).prox(torch.from_numpy(z - 0.5 * v), 0.5).numpy()
            norms.append(float(np.linalg.norm(z - again) / 0.5))
    for larger, smaller in pairwise(exact):
        assert larger / smaller == pytest.approx(2, rel=0.1)
    for larger, smaller in pairwise(drifted):
        assert larger / smaller == pytest.approx(4, rel=0.1)
