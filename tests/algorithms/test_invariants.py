"""What holds after every round, whoever takes part."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcanon import PGD, FedAvg, FedCanon, FedCanonII, FedCanonPlus, Federation, Problem
from fedcanon.penalties import L1, MCP
from tests.problems import logistics, quadratics

BASE = quadratics(clients=6, d=4)
rounds_of_sets = st.lists(
    st.sets(st.integers(0, 5), min_size=1).map(sorted), min_size=1, max_size=12
)
client_weights = st.lists(st.floats(0.1, 10), min_size=6, max_size=6)


def mean_of_all(federation):
    """Σ p_i v_i over all clients; one that never took part has v_i = 0."""
    total = sum(federation.problem.weights)
    return sum(
        (federation.problem.weights[i] / total) * state["v"]
        for i, state in federation.engine.clients.items()
    )


@settings(deadline=None, max_examples=60)
@given(sets=rounds_of_sets, weights=client_weights)
def test_e_is_the_mean_of_all_v_for_any_participation_and_weights(sets, weights):
    problem = Problem(BASE.clients, BASE.start, weights)
    for algorithm in (FedCanon(0.4, 0.05, 3), FedCanonPlus(0.4, 0.05, 3)):
        federation = Federation(problem, algorithm, MCP(0.3, 4.0))
        for participants in sets:
            federation.step(participants)
            error = (federation.server["e"] - mean_of_all(federation)).abs().max()
            assert error < 1e-12


@settings(deadline=None, max_examples=30)
@given(rounds=st.integers(1, 15), K=st.integers(1, 8))
def test_control_variables_sum_to_zero_with_all_clients(rounds, K):
    federation = Federation(BASE, FedCanon(0.4, 0.05, K), L1(0.3))
    for _ in range(rounds):
        federation.step()
        controls = [federation.server["e"] - s["v"] for s in federation.engine.clients.values()]
        assert torch.stack(controls).sum(0).abs().max() < 1e-12


def test_b_recalled_by_a_client_has_the_bits_that_the_server_would_send():
    problem = logistics(clients=4, d=6, samples=20)
    algorithm = FedCanonPlus(0.7, 0.1, 5)
    federation = Federation(problem, algorithm, L1(0.05))
    federation.step()
    for _ in range(10):
        before = federation.server
        federation.step()
        recalled = algorithm.recall({"z": before["z"], "alpha": 0.7}, {"z": federation.server["z"]})
        assert torch.equal(recalled["b"], federation.server["b"])


def test_floats_and_prox_calls_of_the_cost_table():
    """Floats per client and round in units of d; prox calls in a round t ≥ 1 with N = 10."""
    problem = logistics(clients=10, d=6, samples=20)
    expected = {
        FedCanon(0.7, 0.1, 5): (3, 0, 1),
        FedCanonII(0.7, 0.1, 5): (2, 10, 0),
        FedCanonPlus(0.7, 0.1, 5): (2, 0, 1),
        FedAvg(0.1, 5): (2, 0, 0),
        PGD(0.7): (2, 0, 1),
    }
    for algorithm, (floats, client_prox, server_prox) in expected.items():
        federation = Federation(problem, algorithm, L1(0.05))
        federation.step()
        before = vars(federation.cost).copy()
        federation.step()
        spent = {name: count - before[name] for name, count in vars(federation.cost).items()}
        assert spent["floats_down"] + spent["floats_up"] == floats * 10 * 6, algorithm
        assert spent["bytes_down"] + spent["bytes_up"] == 8 * floats * 10 * 6, algorithm
        assert (spent["client_prox"], spent["server_prox"]) == (client_prox, server_prox), algorithm


def test_fedcanon_plus_sends_three_vectors_to_a_client_that_was_away():
    problem = logistics(clients=3, d=6, samples=20)
    federation = Federation(problem, FedCanonPlus(0.7, 0.1, 5), L1(0.05))
    down = []
    for participants in ([0, 1], [0, 2], [0, 1, 2], [0, 1, 2]):
        before = federation.cost.floats_down
        federation.step(participants)
        down.append((federation.cost.floats_down - before) // 6)
    assert down == [4, 1 + 2, 1 + 2 + 1, 3]
