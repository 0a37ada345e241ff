"""Where every method ends: at the optimum, or at a distance from it that halves with its step."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy.special import expit
from sklearn.linear_model import Lasso

from fedcanon import Federation, Problem, Quadratic
from fedcanon.algorithms import (
    PGD,
    ZA1,
    DecentralisedProxSkip,
    FastFedDA,
    FedADMM,
    FedAvg,
    FedAvgM,
    FedCanon,
    FedCanonPlus,
    FedDA,
    FedDR,
    FedDyn,
    FedMiD,
    FedPD,
    FedProx,
    ProxSkip,
    Scaffnew,
    Scaffold,
)
from fedcanon.penalties import L1, MCP, SCAD, Zero
from fedcanon.runs.measures import stationarity
from tests.problems import logistics, quadratics, smoothness

GOAL = 1e-11


class Pooled:
    """f over all clients in numpy, with nothing of the package but the numbers in the clients."""

    def __init__(self, problem):
        clients = problem.clients
        self.quadratic = isinstance(clients[0], Quadratic)
        if self.quadratic:
            self.A = np.mean([c.A.numpy() for c in clients], axis=0)
            self.right = np.mean([c.A.numpy() @ c.b.numpy() for c in clients], axis=0)
        else:  # as many samples on every client, so that f is the mean over all of them
            self.X = np.concatenate([c._x for c in clients])
            self.y = np.concatenate([c._y for c in clients])

    def gradient(self, x):
        if self.quadratic:
            return self.A @ x - self.right
        return -self.X.T @ (self.y * expit(-self.y * (self.X @ x))) / len(self.y)

    def hessian(self, x):
        if self.quadratic:
            return self.A
        scores = self.X @ x
        return (self.X.T * (expit(scores) * expit(-scores))) @ self.X / len(self.y)

    def optimum(self, kappa):
        """argmin f + κ‖·‖₁: the support by shrinkage, then Newton's method on it; KKT asserted."""
        x = np.zeros(self.size)
        for _ in range(2000):
            y = x - 0.5 * self.gradient(x)
            x = y - np.clip(y, -0.5 * kappa, 0.5 * kappa)
        support, signs = x != 0, np.sign(x)
        for _ in range(10):
            H = self.hessian(x)[np.ix_(support, support)]
            x[support] -= np.linalg.solve(H, (self.gradient(x) + kappa * signs)[support])
        residual = self.gradient(x) + kappa * signs
        assert np.abs(residual[support]).max() < 1e-14
        assert (np.sign(x) == signs).all()
        assert (np.abs(residual[~support]) < 0.999 * kappa).all()
        return x

    @property
    def size(self):
        return len(self.right) if self.quadratic else self.X.shape[1]


@dataclass(frozen=True)
class Case:
    problem: Problem
    kappa: float
    L: float
    optima: dict[str, torch.Tensor]


def case(problem, kappa):
    pooled = Pooled(problem)
    levels = {"f": 0.0, "f + h": kappa, "f + 2h": 2 * kappa}
    optima = {name: torch.from_numpy(pooled.optimum(level)) for name, level in levels.items()}
    return Case(problem, kappa, smoothness(problem), optima)


CASES = {
    "quadratic": case(quadratics(), 0.3),
    "logistic": case(logistics(clients=5, d=8, samples=30), 0.05),
}


@pytest.fixture(params=CASES)
def on(request):
    return CASES[request.param]


def distance(federation, optimum):
    return float((federation.model - optimum).norm())


def approach(federation, optimum, rounds=800, goal=GOAL):
    """The distance to the optimum after so many rounds, or fewer if it falls below the goal."""
    while federation.rounds_done < rounds:
        for _ in range(25):
            federation.step()
        left = distance(federation, optimum)
        if left < goal:
            break
    return left


def test_the_optima_are_scikit_learns_and_apart_from_each_other():
    """With A = RᵀR, f + κ‖·‖₁ is a lasso on the rows of R."""
    quadratic = CASES["quadratic"]
    pooled = Pooled(quadratic.problem)
    R = np.linalg.cholesky(pooled.A).T
    lasso = Lasso(alpha=0.3 / pooled.size, fit_intercept=False, tol=1e-12, max_iter=100_000)
    lasso.fit(R, np.linalg.solve(R.T, pooled.right))
    assert np.abs(lasso.coef_ - quadratic.optima["f + h"].numpy()).max() < 1e-7
    solved = np.linalg.solve(pooled.A, pooled.right)
    assert np.abs(solved - quadratic.optima["f"].numpy()).max() < 1e-14
    assert (quadratic.optima["f + h"] != 0).sum() == 8
    for each in CASES.values():
        points = [each.problem.start, *each.optima.values()]
        for i, one in enumerate(points):
            assert all(float((one - other).norm()) > 0.05 for other in points[:i])


def solver(L, eta, K=None):
    """Exact resolvents, or K local steps, of the step 1/(L + 1/η)."""
    beta = 1 / (L + 1 / eta)
    return {"beta": beta, "tolerance": 1e-13} if K is None else {"beta": beta, "local_steps": K}


def feddr(L, K=None, **options):
    return FedDR(eta=1 / L, **solver(L, 1 / L, K), **options)


def fedadmm(L, K=None, **options):
    return FedADMM(eta=L, **solver(L, 1 / L, K), **options)


def feddyn(L, K=None):
    return FedDyn(strength=L, **solver(L, 1 / L, K))


def fedpd(L, K=None):
    return FedPD(eta=1 / L, **solver(L, 1 / L, K))


def ring(L):
    return DecentralisedProxSkip(1 / (2 * L), probability=0.3, topology="ring")


EXACT = {
    # the method for a smoothness L, and the participants of 5
    "PGD": (lambda L: PGD(1 / L), 5),
    "FedCanon, K = 1": (lambda L: FedCanon(1 / L, 0.1 / L, 1), 5),
    "FedCanon+": (lambda L: FedCanonPlus(1 / L, 0.1 / L, 5), 5),
    "FedCanon+, 2 of 5": (lambda L: FedCanonPlus(1 / L, 0.1 / L, 5), 2),
    "FedAvg, K = 1": (lambda L: FedAvg(1 / L, 1), 5),
    "FedAvg, K = 1, momentum": (lambda L: FedAvg(1 / L, 1, momentum=0.5), 5),
    "SCAFFOLD I": (lambda L: Scaffold(0.2 / L, 5, option="I"), 5),
    "SCAFFOLD II": (lambda L: Scaffold(0.2 / L, 5, option="II"), 5),
    "SCAFFOLD I, 2 of 5": (lambda L: Scaffold(0.2 / L, 5, option="I"), 2),
    "SCAFFOLD II, 2 of 5": (lambda L: Scaffold(0.2 / L, 5, option="II"), 2),
    "ProxSkip": (lambda L: ProxSkip(1 / L, probability=0.3), 5),
    "SCAFFNEW": (lambda L: Scaffnew(1 / L, probability=0.3), 5),
    "decentralised ProxSkip": (ring, 5),
    "FedMiD, server's prox, K = 1": (lambda L: FedMiD(1 / L, 1, client_prox=False), 5),
    "FedDA, K = 1": (lambda L: FedDA(1 / L, 1), 5),
    "ZA1": (lambda L: ZA1(0.2 / L, 5), 5),
    "ZA1, η_g = 0.5": (lambda L: ZA1(0.2 / L, 5, 0.5), 5),
    "FedDR": (feddr, 5),
    "FedDR, 1.95": (lambda L: feddr(L, relaxation=1.95), 5),
    "FedDR, 2 of 5": (feddr, 2),
    "FedDR, prox start": (lambda L: feddr(L, init="prox"), 2),
    "FedDR, 5 steps": (lambda L: feddr(L, 5), 5),
    "FedDR, 5 steps, 2 of 5": (lambda L: feddr(L, 5), 2),
    "FedADMM": (fedadmm, 5),
    "FedADMM, 2 of 5": (fedadmm, 2),
    "FedADMM, 5 steps": (lambda L: fedadmm(L, 5), 5),
    "FedADMM, 1 step": (lambda L: fedadmm(L, 1), 5),
    "FedADMM, relaxed": (lambda L: fedadmm(L, relaxation=1.5), 5),
    "FedPD": (fedpd, 5),
    "FedPD, 5 steps": (lambda L: fedpd(L, 5), 5),
    "FedDyn": (feddyn, 5),
    "FedDyn, 2 of 5": (feddyn, 2),
    "FedDyn, 5 steps": (lambda L: feddyn(L, 5), 5),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXACT)
def test_exact_methods_end_at_the_optimum(on, name):
    """Methods that solve f ignore the penalty, which is there all the same."""
    make, participants = EXACT[name]
    algorithm = make(on.L)
    federation = Federation(on.problem, algorithm, L1(on.kappa), participants=participants)
    optimum = on.optima[algorithm.solves]
    assert approach(federation, optimum) < GOAL
    # ProxSkip evaluates a point between two proxes, which has no exact zeros.
    if algorithm.solves == "f + h" and not isinstance(algorithm, ProxSkip):
        assert torch.equal(federation.model == 0, optimum == 0)


def test_fedcanon_without_a_penalty_is_exact(on):
    federation = Federation(on.problem, FedCanon(1 / on.L, 0.1 / on.L, 5), Zero())
    assert approach(federation, on.optima["f"]) < GOAL


def test_every_node_of_a_ring_arrives(on):
    federation = Federation(on.problem, ring(on.L), Zero())
    approach(federation, on.optima["f"], goal=1e-13)
    assert federation.server["z"].shape == (5, len(on.problem.start))
    for x in federation.server["z"]:
        assert float((x - on.optima["f"]).norm()) < GOAL


def test_fedpd_that_skips_is_exact_on_equal_clients():
    client = quadratics().clients[0]
    equal = Problem([client] * 3, torch.zeros_like(client.b))
    federation = Federation(equal, FedPD(eta=4.0, skip=0.3, **solver(1.0, 4.0, 10)), Zero())
    assert approach(federation, client.b) < GOAL
    assert federation.cost.floats_up == 3 * 10 * federation.rounds_done


def test_published_fedmid_of_one_client_and_step_counts_the_penalty_twice(on):
    alone = Problem([on.problem.clients[0]], on.problem.start)
    twice = torch.from_numpy(Pooled(alone).optimum(2 * on.kappa))
    federation = Federation(alone, FedMiD(1 / on.L, 1), L1(on.kappa))
    assert approach(federation, twice, 2000) < GOAL


@pytest.mark.slow
def test_the_error_of_fast_fedda_falls_like_one_over_t(on):
    federation = Federation(on.problem, FastFedDA(1 / (2 * on.L), 5, mu=0.1), L1(on.kappa))
    errors = [approach(federation, on.optima["f + h"], rounds) for rounds in (75, 150, 300)]
    assert 1.7 < errors[0] / errors[1] < 2.3
    assert 1.7 < errors[1] / errors[2] < 2.3
    assert torch.equal(federation.model == 0, on.optima["f + h"] == 0)


HALVING = {
    # the method for a smoothness L and a local step β, what it minimises nearly, and βL
    "FedCanon": (lambda L, beta: FedCanon(1 / L, beta, 10), "f + h", 0.02),
    "FedAvg": (lambda L, beta: FedAvg(beta, 10, 0.1 / (beta * L)), "f", 0.02),
    "FedAvg, momentum": (
        lambda L, beta: FedAvg(beta, 10, 0.1 / (beta * L), momentum=0.5),
        "f",
        0.02,
    ),
    "FedProx": (lambda L, beta: FedProx(beta, 10, 0.1 / (beta * L), mu=0.5), "f", 0.02),
    "FedAvg-M": (lambda L, beta: FedAvgM(1 / L, beta, 10, fresh=0.5), "f", 0.02),
    "FedMiD, none": (lambda L, beta: FedMiD(beta, 4, server_prox="none"), "f + h", 0.01),
    "FedMiD, server's prox": (
        lambda L, beta: FedMiD(beta, 10, 0.1 / (beta * L), client_prox=False),
        "f + h",
        0.02,
    ),
    "FedMiD, published": (lambda L, beta: FedMiD(beta, 4), "f + 2h", 0.01),
    "FedDA": (lambda L, beta: FedDA(beta, 10, 0.1 / (beta * L)), "f + h", 0.02),
}


def settled(problem, algorithm, penalty):
    """The limit, as far as 25 rounds no longer change it."""
    federation = Federation(problem, algorithm, penalty)
    moved = 1.0
    while moved > 1e-5:
        assert federation.rounds_done < 2000
        moved = distance_of_rounds(federation, 25)
    return federation.model


def distance_of_rounds(federation, rounds):
    before = federation.model
    for _ in range(rounds):
        federation.step()
    return distance(federation, before)


@pytest.mark.slow
@pytest.mark.parametrize("name", HALVING)
def test_biased_methods_end_at_a_distance_that_halves_with_the_local_step(on, name):
    make, target, beta_l = HALVING[name]
    start, left = on.problem.start, []
    for factor in (4, 1, 0.5):  # each run starts where the one before ended, which is near
        algorithm = make(on.L, factor * beta_l / on.L)
        start = settled(Problem(on.problem.clients, start), algorithm, L1(on.kappa))
        left.append(float((start - on.optima[target]).norm()))
    assert 1.7 < left[1] / left[2] < 2.3
    others = [o for name, o in on.optima.items() if name != target]
    assert all(left[2] < 0.2 * float((start - other).norm()) for other in others)


@pytest.mark.slow
def test_fedpd_that_skips_stays_at_a_distance_that_halves_with_eta():
    """Its coins keep it moving: the root of the mean squared distance is compared."""
    on, spreads = CASES["quadratic"], []
    for eta in (0.5, 0.25):
        federation = Federation(on.problem, FedPD(eta=eta, skip=0.3, **solver(1.0, eta, 5)), Zero())
        approach(federation, on.optima["f"], 100)
        squares = []
        for _ in range(1200):
            federation.step()
            squares.append(distance(federation, on.optima["f"]) ** 2)
        spreads.append(np.sqrt(np.mean(squares)))
    assert 0.1 < spreads[1] < 0.2
    assert 1.7 < spreads[0] / spreads[1] < 2.3


@pytest.mark.slow
def test_averaging_destroys_zeros_in_fedmid_and_not_in_fedda():
    on = CASES["quadratic"]
    zeros = {}
    for algorithm in (FedMiD(0.01, 10, server_prox="none"), FedDA(0.01, 10), FedMiD(0.01, 10)):
        model = settled(on.problem, algorithm, L1(on.kappa))
        zeros[algorithm] = int((model == 0).sum())
    assert list(zeros.values())[:2] == [0, int((on.optima["f + h"] == 0).sum())]
    assert zeros[FedMiD(0.01, 10)] > 2  # the server's prox makes them again, and too many


WEAK = {
    "FedCanon+": FedCanonPlus(0.8, 0.1, 5),
    "ZA1": ZA1(0.16, 5),
    "FedDR": FedDR(eta=2.0, **solver(1.0, 2.0)),
    "FedDR, 5 steps": FedDR(eta=2.0, **solver(1.0, 2.0, 5)),
    "FedADMM": FedADMM(eta=0.5, **solver(1.0, 2.0)),
    "FedADMM, 5 steps": FedADMM(eta=0.5, **solver(1.0, 2.0, 5)),
    "ProxSkip": ProxSkip(0.6, probability=0.3),
}


def stationary(federation, rounds=800, goal=1e-12):
    """‖G^0.3‖ after so many rounds, or fewer if it falls below the goal."""
    problem = federation.problem
    while federation.rounds_done < rounds:
        for _ in range(25):
            federation.step()
        z = federation.model
        assert float(z.norm()) < 10  # ‖G‖ is lost in rounding where z is huge
        reached = stationarity(federation.penalty, z, problem.value_and_gradient(z)[1], 0.3)
        if reached < goal:
            break
    return reached


@pytest.mark.parametrize("penalty", [MCP(0.3, 4.0, "lambda"), SCAD(0.3, 3.7, "lambda")], ids=str)
@pytest.mark.parametrize("name", WEAK)
def test_exact_methods_reach_stationary_points_of_weakly_convex_penalties(name, penalty):
    federation = Federation(quadratics(), WEAK[name], penalty)
    assert stationary(federation) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("penalty", [MCP(0.3, 4.0, "lambda"), SCAD(0.3, 3.7, "lambda")], ids=str)
def test_fedcanon_stops_before_a_stationary_point_of_a_weakly_convex_penalty(penalty):
    coarse, fine = (
        stationary(Federation(quadratics(), FedCanon(0.5, beta, 10), penalty), 300)
        for beta in (0.05, 0.005)
    )
    assert coarse > 1e-2
    assert 7 < coarse / fine < 13
    federation = Federation(quadratics(), FedCanon(0.5, 0.05, 1), penalty)
    assert stationary(federation) < 1e-12
