"""Networks of nodes: their mixing matrices, and runs on them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcanon import FedcanonError, Federation, Problem, fit
from fedcanon.algorithms import DecentralisedProxSkip, Scaffnew
from fedcanon.algorithms.topology import links
from fedcanon.penalties import Zero
from tests.problems import quadratics, smoothness

TOPOLOGIES = ["star", "ring", "grid", "complete", "erdos-renyi:0.5", "erdos-renyi:1"]
PROBLEM = quadratics(clients=6)
D = len(PROBLEM.start)
BETA = 1 / (2 * smoothness(PROBLEM))

nodes = st.integers(1, 16)
seeds = st.integers(0, 2**32)


def mixing(topology, nodes, weight=1.0, seed=0):
    found = links(topology, nodes, weight, seed)
    return found.weights.numpy(), np.array(found.degrees)


def neighbours(W):
    """Which nodes are joined, as a matrix of truth values."""
    return (W != 0) & ~np.eye(len(W), dtype=bool)


@settings(deadline=None, max_examples=150)
@given(st.sampled_from(TOPOLOGIES), nodes, seeds, st.sampled_from([0.5, 1.0, 0.2]))
def test_mixing_averages_and_reaches_every_node(topology, n, seed, weight):
    W, _ = mixing(topology, n, weight, seed)
    assert W.shape == (n, n)
    assert np.array_equal(W, W.T)
    assert np.abs(W.sum(1) - 1).max() < 1e-14
    assert W.min() >= -1e-16
    eigenvalues = np.linalg.eigvalsh(mixing(topology, n, 0.5, seed)[0])
    assert eigenvalues[-1] == pytest.approx(1, abs=1e-12)
    # A path of 16 nodes, the slowest of these, has the gap (1 − cos(π/16))/3 = 0.0064.
    assert np.abs(eigenvalues[:-1]).max(initial=0) < 1 - 0.006


@settings(deadline=None)
@given(st.sampled_from(TOPOLOGIES), nodes, seeds, st.floats(0.01, 1))
def test_the_weight_moves_from_the_identity_to_the_mixing_matrix(topology, n, seed, weight):
    full, degrees = mixing(topology, n, 1.0, seed)
    W, same = mixing(topology, n, weight, seed)
    assert np.abs(W - ((1 - weight) * np.eye(n) + weight * full)).max() < 1e-15
    assert np.array_equal(degrees, same)


@given(nodes)
def test_a_star_averages_everything_through_one_server(n):
    W, degrees = mixing("star", n)
    assert np.array_equal(W, np.full((n, n), 1 / n))
    assert degrees.tolist() == [1] * n


@settings(deadline=None)
@given(st.sampled_from(TOPOLOGIES[1:]), nodes, seeds)
def test_degrees_are_those_of_the_graph_and_weights_those_of_metropolis(topology, n, seed):
    W, degrees = mixing(topology, n, 1.0, seed)
    joined = neighbours(W)
    assert np.array_equal(degrees, joined.sum(1))
    expected = 1 / (1 + np.maximum.outer(degrees, degrees))
    assert np.abs(W - expected)[joined].max(initial=0) < 1e-15


@given(nodes)
def test_a_ring_joins_each_node_with_the_next(n):
    W, _ = mixing("ring", n)
    gap = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    assert np.array_equal(neighbours(W), (gap == 1) | ((gap == n - 1) & (n > 1)))


@given(nodes)
def test_a_complete_graph_joins_all(n):
    W, degrees = mixing("complete", n)
    assert degrees.tolist() == [n - 1] * n
    assert np.abs(W - 1 / n).max() < 1e-15


@settings(deadline=None)
@given(nodes)
def test_a_grid_is_as_square_as_the_number_of_nodes_allows(n):
    W, _ = mixing("grid", n)
    rows = max(r for r in range(1, n + 1) if n % r == 0 and r * r <= n)
    place = np.stack(np.divmod(np.arange(n), n // rows), axis=1)
    distance = np.abs(place[:, None] - place[None]).sum(-1)
    assert np.array_equal(neighbours(W), distance == 1)


def test_a_random_graph_is_that_of_its_seed_and_always_connected():
    """Of sparse draws on ten nodes most are not connected; they are drawn again."""
    graphs = [mixing("erdos-renyi:0.2", 10, 0.5, seed)[0] for seed in range(20)]
    assert all(np.abs(np.linalg.eigvalsh(W)[:-1]).max() < 1 - 1e-3 for W in graphs)
    again = [mixing("erdos-renyi:0.2", 10, 0.5, seed)[0] for seed in range(20)]
    assert all(np.array_equal(one, two) for one, two in zip(graphs, again, strict=True))
    assert len({W.tobytes() for W in graphs}) > 15
    assert np.array_equal(mixing("erdos-renyi:1", 10)[0], mixing("complete", 10)[0])


def test_a_random_graph_has_about_its_share_of_edges():
    joined = [neighbours(mixing("erdos-renyi:0.5", 12, seed=s)[0]).mean() for s in range(40)]
    assert np.mean(joined) == pytest.approx(0.5 * 11 / 12, abs=0.04)


@pytest.mark.parametrize(
    "name",
    [
        "torus",
        "",
        "Ring",
        "ring:3",
        "star:2",
        "grid:2x3",
        "complete:0.5",
        "erdos-renyi",
        "erdos-renyi:",
        "erdos-renyi:half",
        "erdos-renyi:0",
        "erdos-renyi:-0.5",
        "erdos-renyi:1.5",
        "erdos-renyi:nan",
    ],
)
def test_unknown_names_are_refused_with_the_choices(name):
    with pytest.raises(FedcanonError) as caught:
        Federation(PROBLEM, DecentralisedProxSkip(topology=name), Zero())
    message = str(caught.value)
    assert message.startswith(f"there is no topology '{name}': use star, ring, grid, complete")
    assert "\n" not in message


def test_a_random_graph_that_cannot_be_connected_is_refused():
    with pytest.raises(FedcanonError, match=r"no connected erdos-renyi:0\.001 of 12 nodes"):
        links("erdos-renyi:0.001", 12, 0.5, 0)


@given(nodes, seeds)
def test_a_matrix_is_taken_as_it_is(n, seed):
    rng = np.random.default_rng(seed)
    W = rng.random((n, n)) * (rng.random((n, n)) < 0.5) + np.eye(n, k=1)
    W = (W + W.T) / (6 * n)
    W += np.diag(1 - W.sum(1))
    found, degrees = mixing(tuple(map(tuple, W.tolist())), n)
    assert np.array_equal(found, W)
    assert np.array_equal(degrees, neighbours(W).sum(1))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (((1.0,),), "for 2 clients needs 2 rows"),
        (((0.5, 0.5), (0.5, 0.5), (0.5, 0.5)), "for 2 clients needs 2 rows"),
        (((0.5, 0.5), (1.0,)), "for 2 clients needs 2 rows"),
        (((0.5, 0.5, 0.0), (0.5, 0.5, 0.0)), "for 2 clients needs 2 rows"),
        (((0.7, 0.3), (0.4, 0.6)), "symmetric"),
        (((0.5, 0.4), (0.4, 0.5)), "sum to 1"),
        (((float("nan"), 0.5), (0.5, 0.5)), "symmetric"),
        (((2.0, -1.0), (-1.0, 2.0)), "without negative entries"),
        (((1.0, 0.0), (0.0, 1.0)), "connect all clients"),
    ],
)
def test_matrices_that_do_not_average_are_refused(rows, message):
    problem = Problem(PROBLEM.clients[:2], PROBLEM.start)
    with pytest.raises(FedcanonError, match=message):
        Federation(problem, DecentralisedProxSkip(topology=rows), Zero())


@pytest.fixture(scope="module")
def optimum():
    """argmin f, by a linear system."""
    A = sum(client.A for client in PROBLEM.clients)
    return torch.linalg.solve(A, sum(client.A @ client.b for client in PROBLEM.clients))


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["ring", "grid", "complete", "erdos-renyi:0.5", "star"])
def test_every_node_reaches_the_optimum(topology, optimum):
    algorithm = DecentralisedProxSkip(beta=BETA, probability=1.0, topology=topology)
    federation = Federation(PROBLEM, algorithm, Zero())
    result = fit(federation, 300)
    apart = [record.diagnostics["consensus_error"] for record in result.records]
    assert (federation.server["z"] - optimum).abs().max() < 1e-12
    assert (result.vector - optimum).abs().max() < 1e-12
    assert apart[0] == 0
    assert max(apart) > 0.1
    assert apart[-1] < 1e-12


@pytest.mark.slow
def test_every_node_reaches_the_optimum_when_it_skips_communications(optimum):
    algorithm = DecentralisedProxSkip(beta=BETA, probability=0.3, topology="ring")
    federation = Federation(PROBLEM, algorithm, Zero())
    result = fit(federation, 300)
    assert (federation.server["z"] - optimum).abs().max() < 1e-12
    assert result.last.diagnostics["consensus_error"] < 1e-12


def test_the_consensus_error_is_the_root_mean_square_distance_to_the_mean():
    federation = Federation(PROBLEM, DecentralisedProxSkip(beta=BETA, topology="ring"), Zero())
    record = fit(federation, 3).last
    x = federation.server["z"].numpy()
    expected = np.sqrt(np.mean(np.linalg.norm(x - x.mean(0), axis=1) ** 2))
    assert record.diagnostics["consensus_error"] == pytest.approx(expected, rel=1e-12)
    assert torch.equal(federation.model, federation.server["z"].mean(0))


def test_the_control_variables_of_the_nodes_sum_to_zero():
    algorithm = DecentralisedProxSkip(beta=BETA, topology="grid")
    federation = Federation(PROBLEM, algorithm, Zero())
    for _ in range(20):
        federation.step()
        controls = torch.stack([state["e"] for state in federation.engine.clients.values()])
        assert controls.sum(0).abs().max() < 1e-12
    assert controls.abs().max() > 0.1


PATH = np.eye(6) + (np.eye(6, k=1) + np.eye(6, k=-1)) / 3
PATH -= np.diag(PATH.sum(1) - 1)
MATRIX = tuple(map(tuple, PATH.tolist()))


@pytest.mark.parametrize(
    ("topology", "degrees"),
    [
        ("star", 6 * 1),
        ("ring", 6 * 2),
        ("grid", 4 * 2 + 2 * 3),
        ("complete", 6 * 5),
        (MATRIX, 2 * 5),
        ("erdos-renyi:0.5", None),
    ],
    ids=["star", "ring", "grid", "complete", "matrix", "erdos-renyi"],
)
@pytest.mark.parametrize("probability", [1.0, 0.4])
def test_every_node_exchanges_one_vector_with_each_neighbour(topology, degrees, probability):
    """A communication costs deg(i)·d floats each way, however many local steps it follows."""
    if degrees is None:
        degrees = int(neighbours(mixing(topology, 6)[0]).sum())
        assert 5 <= degrees // 2 < 15
    algorithm = DecentralisedProxSkip(beta=BETA, probability=probability, topology=topology)
    federation = Federation(PROBLEM, algorithm, Zero())
    for rounds in range(1, 5):
        federation.step()
        cost = federation.cost
        assert (cost.floats_down, cost.floats_up) == (rounds * degrees * D,) * 2
        assert (cost.bytes_down, cost.bytes_up) == (rounds * degrees * D * 8,) * 2
        assert (cost.client_prox, cost.server_prox) == (0, 0)


def test_a_star_costs_what_scaffnew_costs():
    costs = []
    for algorithm in (DecentralisedProxSkip(beta=BETA, chi=0.5), Scaffnew(beta=BETA)):
        federation = Federation(PROBLEM, algorithm, Zero())
        for _ in range(4):
            federation.step()
        costs.append((federation.cost.floats_down, federation.cost.floats_up))
    assert costs[0] == costs[1] == (4 * 6 * D, 4 * 6 * D)


def test_sampling_is_refused():
    algorithm = DecentralisedProxSkip(beta=BETA, topology="ring")
    with pytest.raises(FedcanonError, match="needs all 6 clients"):
        Federation(PROBLEM, algorithm, Zero(), participants=3)
    federation = Federation(PROBLEM, algorithm, Zero())
    with pytest.raises(FedcanonError, match="needs all 6 clients"):
        federation.step([0, 1, 2])


def test_unequal_weights_are_refused_and_equal_ones_are_not():
    algorithm = DecentralisedProxSkip(beta=BETA, topology="ring")
    unequal = Problem(PROBLEM.clients, PROBLEM.start, [1.0, 1, 1, 1, 1, 2])
    with pytest.raises(FedcanonError, match="cannot weigh clients differently"):
        Federation(unequal, algorithm, Zero())
    equal = Problem(PROBLEM.clients, PROBLEM.start, [3.0] * 6)
    models = []
    for problem in (PROBLEM, equal):
        federation = Federation(problem, algorithm, Zero())
        federation.step()
        models.append(federation.model)
    assert torch.equal(*models)


@pytest.mark.parametrize("chi", [0.49, 0.0, -1.0, float("nan"), float("inf")])
def test_a_chi_below_one_half_or_without_end_is_refused(chi):
    with pytest.raises(FedcanonError, match=r"chi must be at least 0\.5"):
        DecentralisedProxSkip(chi=chi)
