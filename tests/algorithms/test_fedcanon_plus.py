"""FedCanon+ reaches the exact stationary point where FedCanon stops: the table of the method."""

import pytest

from fedcanon import FedCanon, FedCanonPlus, Federation
from fedcanon.penalties import L1, MCP
from fedcanon.runs.measures import stationarity
from tests.problems import logistics, quadratics, smoothness

PROBLEM = logistics()
L = smoothness(PROBLEM)


def stationarity_after(algorithm, penalty, participants, rounds, goal=0.0):
    """‖G^α‖ after so many rounds, or fewer if it falls below the goal."""
    federation = Federation(PROBLEM, algorithm, penalty, participants=participants)
    while federation.rounds_done < rounds:
        for _ in range(50):
            federation.step()
        z = federation.model
        reached = stationarity(penalty, z, PROBLEM.value_and_gradient(z)[1], algorithm.alpha)
        if reached < goal:
            break
    return reached


ROWS = {
    # penalty, participants of 10, αL, βL, K, and the order of magnitude where FedCanon stops
    "l1, all": (L1(0.02), 10, 1.0, 0.1, 10, 1e-3),
    "l1, all, long": (L1(0.02), 10, 1.0, 0.5, 40, 1e-1),
    "l1, 3 of 10": (L1(0.02), 3, 2.0, 0.2, 10, 1e-2),
    "l1, 1 of 10": (L1(0.02), 1, 1.0, 0.1, 10, 1e-3),
    "mcp, all": (MCP(0.02, 3.0), 10, 1.0, 0.1, 10, 1e-3),
    "mcp, 3 of 10, long": (MCP(0.02, 3.0), 3, 1.0, 0.5, 40, 1e-1),
}


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS)
def test_table(row):
    penalty, participants, alpha_l, beta_l, K, order = ROWS[row]
    steps = {"alpha": alpha_l / L, "beta": beta_l / L, "local_steps": K}
    assert stationarity_after(FedCanonPlus(**steps), penalty, participants, 1500, 1e-12) < 1e-12
    plain = stationarity_after(FedCanon(**steps), penalty, participants, 100)
    assert order / 10 < plain < order * 10


@pytest.mark.slow
def test_structural_drift_of_fedcanon_is_linear_in_beta():
    """|z∞ − z*| ∝ β(K − 1): a tenth of the local step leaves a tenth of the distance."""
    problem, penalty = quadratics(), L1(0.3)
    exact = Federation(problem, FedCanonPlus(0.5, 0.05, 10), penalty)
    stops = {beta: Federation(problem, FedCanon(0.5, beta, 10), penalty) for beta in (0.01, 0.001)}
    for federation in (exact, *stops.values()):
        for _ in range(600):
            federation.step()
    coarse, fine = (float((f.model - exact.model).norm()) for f in stops.values())
    assert 9 < coarse / fine < 11


@pytest.mark.slow
def test_structural_drift_at_the_predicted_point():
    """0 ∈ (I − β(K − 1)/2 ∇²f)∇f(z) + ∂h(z), to first order in β."""
    problem, penalty, beta, K = quadratics(), L1(0.3), 0.001, 10
    federation = Federation(problem, FedCanon(0.5, beta, K), penalty)
    for _ in range(600):
        federation.step()
    z = federation.model
    gradient = problem.value_and_gradient(z)[1]
    hessian = sum(client.A for client in problem.clients) / len(problem.clients)
    predicted = gradient - beta * (K - 1) / 2 * hessian @ gradient
    at_the_point = stationarity(penalty, z, predicted, 0.5)
    assert at_the_point < 0.05 * stationarity(penalty, z, gradient, 0.5)
