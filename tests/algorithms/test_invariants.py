"""What holds after every round, whoever takes part."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcanon import Federation, Problem
from fedcanon.algorithms import (
    ALGORITHMS,
    PGD,
    ZA1,
    Assembling,
    DecentralisedProxSkip,
    FastFedDA,
    FedAdam,
    FedADMM,
    FedAvg,
    FedAvgM,
    FedCanon,
    FedCanonII,
    FedCanonPlus,
    FedDA,
    FedDR,
    FedDyn,
    FedExP,
    FedMiD,
    FedPD,
    FedProx,
    FedYogi,
    Mixed,
    Newton,
    ProxSkip,
    Scaffnew,
    Scaffold,
)
from fedcanon.compression import COMPRESSORS, Chain, Clip, Identity, Quantise, RandomK, Sign, TopK
from fedcanon.penalties import L1, MCP
from fedcanon.randomness import Purpose, generator
from tests.problems import logistics, quadratics

BASE = quadratics(clients=6, d=4)
rounds_of_sets = st.lists(
    st.sets(st.integers(0, 5), min_size=1).map(sorted), min_size=1, max_size=12
)
client_weights = st.lists(st.floats(0.1, 10), min_size=6, max_size=6)


def mean_of_all(federation, name="v"):
    """Σ p_i v_i over all clients; one that never took part has the v_i that it would start with."""
    problem = federation.problem
    untouched = federation.algorithm.client_init(problem.start)
    states = [federation.engine.clients.get(i, untouched) for i in range(len(problem.clients))]
    total = math.fsum(problem.weights)
    weighted = zip(problem.weights, states, strict=True)
    return sum((weight / total) * state[name] for weight, state in weighted)


def largest(x):
    return float(x.abs().max())


@pytest.mark.slow
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


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(rounds=st.integers(1, 15), K=st.integers(1, 8))
def test_control_variables_sum_to_zero_with_all_clients(rounds, K):
    federation = Federation(BASE, FedCanon(0.4, 0.05, K), L1(0.3))
    for _ in range(rounds):
        federation.step()
        controls = [federation.server["e"] - s["v"] for s in federation.engine.clients.values()]
        assert torch.stack(controls).sum(0).abs().max() < 1e-12


@pytest.mark.parametrize("accelerated", [False, True])
def test_b_recalled_by_a_client_has_the_bits_that_the_server_would_send(accelerated):
    algorithm = FedCanonPlus(0.7, 0.1, 5, accelerated=accelerated)
    problem = logistics(clients=4, d=6, samples=20)
    federation = Federation(problem, algorithm, L1(0.05))
    federation.step()
    for _ in range(10):
        before = federation.server
        federation.step()
        now = algorithm.broadcast(federation.server, 0, np.random.default_rng(0))
        recalled = algorithm.recall({"z": before["z"]}, now)
        assert torch.equal(recalled["b"], federation.server["b"])


COMPRESSOR_CASES = [
    Identity(),
    TopK(0.3),
    RandomK(0.3),
    Quantise(2),
    Quantise(8, bucket=2),
    Sign(),
    Clip(0.05),
    Clip(1e9),
    Chain((Clip(0.05), Quantise(8), TopK(0.5))),
]


def test_every_compressor_is_among_the_cases():
    assert {type(case) for case in COMPRESSOR_CASES} == {*COMPRESSORS.values(), Chain}


@pytest.mark.slow
@pytest.mark.parametrize("compressor", COMPRESSOR_CASES, ids=str)
@settings(deadline=None, max_examples=15)
@given(sets=rounds_of_sets, weights=client_weights)
def test_compression_leaves_the_invariants_exact(compressor, sets, weights):
    problem = Problem(BASE.clients, BASE.start, weights)
    for method in (FedCanonPlus(0.4, 0.05, 3), FedCanon(0.4, 0.05, 3), FedDyn(0.1, 3)):
        federation = Federation(problem, method, L1(0.3), compressor=compressor)
        [(ours, theirs)] = method.averages.items()
        for participants in (*sets, None):  # two bits may round one client's upload to nothing
            federation.step(participants)
            assert largest(federation.server[ours] - mean_of_all(federation, theirs)) < 1e-12
        # and it is not that of a method that stands still
        assert largest(federation.server[ours]) > 1e-6


SERVER_MEANS = {
    # the server's vector that is the mean over all clients of one of theirs
    "SCAFFOLD I": (Scaffold(0.05, 3, 0.7, option="I"), "e", "e"),
    "SCAFFOLD II": (Scaffold(0.05, 3, 0.7, option="II"), "e", "e"),
    "SCAFFOLD, damped": (Scaffold(0.05, 3, 0.7, gain=0.05), "e", "e"),
    "FedCanon, damped": (FedCanon(0.4, 0.05, 3, gain=0.05), "e", "v"),
    "FedCanon+, damped": (FedCanonPlus(0.4, 0.05, 3, gain=0.05), "e", "v"),
    "FedCanon+, accelerated": (FedCanonPlus(0.4, 0.05, 3, accelerated=True), "e", "v"),
    "FedDyn": (FedDyn(0.1, 3, strength=2.0), "H", "g"),
    "FedDyn, exact": (FedDyn(0.3, tolerance=1e-6, strength=2.0), "H", "g"),
    "FedDR": (FedDR(0.1, 3, eta=0.5), "reflected", "reflected"),
    "FedDR, relaxed": (FedDR(0.1, 3, eta=0.5, relaxation=1.7), "reflected", "reflected"),
    "FedDR, published": (FedDR(0.1, 3, eta=0.5, init="prox"), "reflected", "reflected"),
    "FedADMM": (FedADMM(0.1, 3, eta=2.0), "reflected", "reflected"),
    "FedADMM, relaxed": (FedADMM(0.1, 3, eta=2.0, relaxation=0.6), "reflected", "reflected"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVER_MEANS)
@settings(deadline=None, max_examples=25)
@given(sets=rounds_of_sets, weights=client_weights)
def test_the_server_holds_the_mean_of_all_clients(name, sets, weights):
    algorithm, on_server, on_clients = SERVER_MEANS[name]
    assert algorithm.averages == {on_server: on_clients}
    problem = Problem(BASE.clients, BASE.start, weights)
    federation = Federation(problem, algorithm, MCP(0.3, 4.0))
    if isinstance(algorithm, Assembling) and algorithm.everyone(federation.server):
        sets = [list(range(6)), *sets]
    before = federation.server[on_server]
    for participants in sets:
        federation.step(participants)
        error = federation.server[on_server] - mean_of_all(federation, on_clients)
        assert largest(error) < 1e-12
    assert largest(federation.server[on_server] - before) > 1e-6


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(
    rounds=st.integers(2, 12), p=st.floats(0.1, 1), weights=client_weights, seed=st.integers(0, 9)
)
def test_the_controls_of_scaffnew_sum_to_zero(rounds, p, weights, seed):
    problem = Problem(BASE.clients, BASE.start, weights)
    federation = Federation(problem, Scaffnew(0.3, probability=p), L1(0.3), seed=seed)
    for _ in range(rounds):
        federation.step()
        assert largest(mean_of_all(federation, "e")) < 1e-12
    assert max(largest(state["e"]) for state in federation.engine.clients.values()) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["star", "ring", "grid", "complete", "erdos-renyi:0.5"])
@settings(deadline=None, max_examples=20)
@given(
    rounds=st.integers(2, 12), p=st.floats(0.1, 1), chi=st.floats(0.5, 4), seed=st.integers(0, 9)
)
def test_the_controls_of_decentralised_proxskip_sum_to_zero(topology, rounds, p, chi, seed):
    algorithm = DecentralisedProxSkip(0.3, probability=p, topology=topology, chi=chi)
    federation = Federation(BASE, algorithm, L1(0.3), seed=seed)
    for _ in range(rounds):
        federation.step()
        assert largest(mean_of_all(federation, "e")) < 1e-12
    assert max(largest(state["e"]) for state in federation.engine.clients.values()) > 1e-3


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(
    rounds=st.integers(1, 12),
    K=st.integers(1, 6),
    server_step=st.floats(0.1, 2),
    weights=client_weights,
)
def test_the_controls_of_za1_sum_to_zero(rounds, K, server_step, weights):
    """c_i = (p_i − x̄)/τ − ḡ_i, as each client computes it when the next round begins."""
    problem = Problem(BASE.clients, BASE.start, weights)
    algorithm = ZA1(0.05, K, server_step)
    federation = Federation(problem, algorithm, MCP(0.3, 4.0))
    tau, shares = 0.05 * server_step * K, np.array(weights) / math.fsum(weights)
    for _ in range(rounds):
        federation.step()
        controls = [
            (state["p"] - federation.server["before"]) / tau - state["mean_gradient"]
            for state in federation.engine.clients.values()
        ]
        assert largest(sum(p * c for p, c in zip(shares, controls, strict=True))) < 1e-11
        assert max(map(largest, controls)) > 1e-3


@settings(deadline=None, max_examples=20)
@given(rounds=st.integers(1, 8), weights=client_weights)
def test_clients_that_keep_the_model_all_keep_the_same_bits(rounds, weights):
    """The z of FedCanon II and the p of ZA1, after a prox of their own each."""
    problem = Problem(BASE.clients, BASE.start, weights)
    for algorithm, name in ((FedCanonII(0.4, 0.05, 3), "z"), (ZA1(0.05, 3), "p")):
        federation = Federation(problem, algorithm, MCP(0.3, 4.0))
        for _ in range(rounds):
            model = federation.model
            federation.step()
            for state in federation.engine.clients.values():
                assert torch.equal(state[name], model)


def spent_in_a_round(federation, participants=None):
    before = vars(federation.cost).copy()
    federation.step(participants)
    return {name: count - before[name] for name, count in vars(federation.cost).items()}


COSTS = {
    # floats per client and round in units of d = 6, client prox and server prox, N = 10, K = 5
    PGD(0.7): (2, 0, 1),
    FedCanon(0.7, 0.1, 5): (3, 0, 1),
    FedCanonII(0.7, 0.1, 5): (2, 10, 0),
    FedCanonPlus(0.7, 0.1, 5): (2, 0, 1),
    FedAvg(0.1, 5): (2, 0, 0),
    FedProx(0.1, 5): (2, 0, 0),
    FedAvgM(None, 0.1, 5): (3, 0, 0),
    FedAvg(0.1, 5, momentum=0.9): (2, 0, 0),
    FedAdam(0.1, 5): (2, 0, 0),
    FedYogi(0.1, 5): (2, 0, 0),
    FedExP(0.1, 5): (Fraction(13, 6), 0, 0),  # 2d + 1
    Scaffold(0.1, 5, option="I"): (4, 0, 0),
    Scaffold(0.1, 5, option="II"): (4, 0, 0),
    ProxSkip(0.1, probability=1.0): (2, 0, 1),
    Scaffnew(0.1, 5): (2, 0, 0),
    DecentralisedProxSkip(0.1, 5): (2, 0, 0),
    DecentralisedProxSkip(0.1, 5, topology="ring"): (4, 0, 0),
    DecentralisedProxSkip(0.1, 5, topology="complete"): (18, 0, 0),
    FedMiD(0.1, 5): (2, 50, 1),
    FedMiD(0.1, 5, server_prox="none"): (2, 50, 0),
    FedMiD(0.1, 5, client_prox=False): (2, 0, 1),
    FedDA(0.1, 5): (2, 50, 1),
    FastFedDA(0.1, 5): (4, 50, 1),
    ZA1(0.1, 5): (2, 60, 1),
    FedPD(0.1, 5): (2, 0, 0),
    FedPD(0.1, 5, skip=0.5): (2, 0, 0),
    FedDyn(0.1, 5): (2, 0, 0),
    FedDR(0.1, 5): (2, 0, 1),
    FedADMM(0.1, 5): (2, 0, 1),
}


def test_every_method_is_in_the_cost_table():
    """Newton, whose uploads are no multiples of d, is counted in a test of its own."""
    assert {type(algorithm) for algorithm in COSTS} == set(ALGORITHMS.values()) - {Newton}


@pytest.mark.parametrize("algorithm", COSTS, ids=str)
def test_floats_and_prox_calls_of_the_cost_table(algorithm):
    """In a round t ≥ 1."""
    problem = logistics(clients=10, d=6, samples=20)
    floats, client_prox, server_prox = COSTS[algorithm]
    federation = Federation(problem, algorithm, L1(0.05))
    federation.step()
    for _ in range(3):
        spent = spent_in_a_round(federation)
        assert spent["floats_down"] + spent["floats_up"] == floats * 10 * 6
        assert spent["bytes_down"] + spent["bytes_up"] == 8 * floats * 10 * 6
        assert (spent["client_prox"], spent["server_prox"]) == (client_prox, server_prox)


@pytest.mark.parametrize(
    ("algorithm", "client_prox"),
    [
        (FedMiD(0.1, 5), 3 * 5),
        (FedDA(0.1, 5), 3 * 5),
        (FastFedDA(0.1, 5), 3 * 5),
        (FedDR(0.1, 5), 0),
        (FedADMM(0.1, 5), 0),
        (FedCanon(0.7, 0.1, 5), 0),
    ],
    ids=str,
)
def test_only_participants_cost_anything(algorithm, client_prox):
    """|S|K + 1 prox, and the floats of |S| clients."""
    problem = logistics(clients=10, d=6, samples=20)
    federation = Federation(problem, algorithm, L1(0.05), participants=3)
    federation.step()
    spent = spent_in_a_round(federation)
    assert (spent["client_prox"], spent["server_prox"]) == (client_prox, 1)
    assert spent["floats_down"] + spent["floats_up"] == COSTS[algorithm][0] * 3 * 6


def test_the_first_round_of_dual_averaging_starts_with_an_identity():
    """And ZA1's starting model is a prox; FedCanon II has none to apply before its first Δ̄."""
    problem = logistics(clients=10, d=6, samples=20)
    expected = {FedDA(0.1, 5): (40, 1), FastFedDA(0.1, 5): (40, 1), FedCanonII(0.7, 0.1, 5): (0, 0)}
    for algorithm, calls in expected.items():
        federation = Federation(problem, algorithm, L1(0.05))
        federation.step()
        assert (federation.cost.client_prox, federation.cost.server_prox) == calls
    federation = Federation(problem, ZA1(0.1, 5), L1(0.05))
    assert federation.cost.server_prox == 1
    assert torch.equal(federation.model, L1(0.05).prox(problem.start, 0.5))


def test_proxskip_calls_the_prox_when_its_coin_says_so():
    federation = Federation(quadratics(), ProxSkip(0.3, probability=0.3), L1(0.3), seed=3)
    coins = [generator(3, Purpose.COINS, t).random() < 0.3 for t in range(200)]
    for coin in coins:
        assert spent_in_a_round(federation)["server_prox"] == coin
    assert 40 < sum(coins) < 80
    assert federation.cost.floats_up == 200 * 5 * 10  # only the prox is skipped


@pytest.mark.parametrize("compressor", [TopK(0.5), RandomK(0.5), Quantise(4), Sign()], ids=str)
def test_compressed_uploads_cost_their_bytes(compressor):
    problem = logistics(clients=10, d=6, samples=20)
    federation = Federation(problem, FedCanonPlus(0.7, 0.1, 5), L1(0.05), compressor=compressor)
    federation.step()
    spent = spent_in_a_round(federation)
    size = {
        TopK(0.5): 3 * 8 + 3 * 1,
        RandomK(0.5): 3 * 8 + 8,
        Quantise(4): 8 + 3,
        Sign(): 8 + 1,
    }[compressor]
    assert spent["bytes_up"] == 10 * size
    assert spent["bytes_down"] == 10 * 6 * 8
    assert (spent["client_prox"], spent["server_prox"]) == (0, 1)


SAMPLED = {name: cls for name, cls in ALGORITHMS.items() if cls.partial_participation}


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLED)
def test_two_of_five_clients_may_take_part(name):
    """Sampled clients only get a state; the run stays near where all clients would take it."""
    problem, algorithm = quadratics(), SAMPLED[name](beta=0.05)
    sampled, full = (Federation(problem, algorithm, L1(0.1), participants=s) for s in (2, 5))
    first = sampled.draw_participants()
    assert len(first) == 2
    sampled.step()
    assert set(sampled.engine.clients) == set(first)
    drawn = set(first)
    for _ in range(150):
        drawn |= set(sampled.draw_participants())
        sampled.step()
        full.step()
    assert drawn == set(sampled.engine.clients) == set(range(5))
    assert bool(sampled.model.isfinite().all())
    start_distance = float((problem.start - full.model).norm())
    assert 0 < float((sampled.model - full.model).norm()) < start_distance


WEIGHTED = [*(a for a in COSTS if not isinstance(a, Mixed)), Newton()]


@pytest.mark.parametrize("algorithm", WEIGHTED, ids=str)
def test_integer_weights_are_repeated_clients(algorithm):
    """Coins and step counts come from the server, so that both runs draw the same."""
    base = quadratics(clients=3, d=4)
    first, second, third = base.clients
    weighted = Problem(base.clients, base.start, [1.0, 3.0, 2.0])
    repeated = Problem([first, second, second, second, third, third], base.start)
    one, other = (Federation(p, algorithm, L1(0.1)) for p in (weighted, repeated))
    rounds = [([0, 1, 2], [0, 1, 2, 3, 4, 5])] * 6
    if algorithm.partial_participation:
        rounds += [([1], [1, 2, 3]), ([0, 2], [0, 4, 5]), ([1, 2], [1, 2, 3, 4, 5])] * 3
    for some, same in rounds:
        one.step(some)
        other.step(same)
        assert largest(one.model - other.model) < 1e-12
    assert largest(one.model - base.start) > 1e-3
    unweighted = Federation(base, algorithm, L1(0.1))
    for some, _ in rounds:
        unweighted.step(some)
    assert largest(one.model - unweighted.model) > 1e-4  # the weights do matter


def test_fedcanon_plus_sends_three_vectors_to_a_client_that_was_away():
    problem = logistics(clients=3, d=6, samples=20)
    federation = Federation(problem, FedCanonPlus(0.7, 0.1, 5), L1(0.05))
    down = []
    for participants in ([0, 1], [0, 2], [0, 1, 2], [0, 1, 2]):
        before = federation.cost.floats_down
        federation.step(participants)
        down.append((federation.cost.floats_down - before) // 6)
    assert down == [4, 1 + 2, 1 + 2 + 1, 3]
