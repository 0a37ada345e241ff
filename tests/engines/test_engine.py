"""Batches, sums, randomness and buffers of the in-process engine."""

import copy
import math
import pickle
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedcanon import (
    PGD,
    FedAvg,
    FedCanon,
    FedcanonError,
    FedCanonII,
    FedCanonPlus,
    Federation,
    FlatModule,
    ModuleObjective,
    Problem,
    Quadratic,
)
from fedcanon.algorithms import DecentralisedProxSkip, Links, Scaffnew, Schedule
from fedcanon.compression import TopK
from fedcanon.engines import Local, Rules, Traffic
from fedcanon.engines.aggregation import Mixing
from fedcanon.engines.summation import Tree, subtrees, sum_of_rows
from fedcanon.engines.work import Batches
from fedcanon.penalties import L1, MCP, Zero
from fedcanon.randomness import Purpose, generator
from fedcanon.runs.measures import stationarity
from tests.problems import logistics, quadratics


@given(samples=st.integers(1, 40), size=st.integers(1, 50), seed=st.integers(0, 100))
def test_batches_go_through_all_samples_before_any_comes_again(samples, size, seed):
    batches = Batches(samples, size, lambda: np.random.default_rng(seed))
    if size >= samples:
        assert batches.next() is None
        return
    per_pass = samples // size
    for _ in range(3):
        seen = torch.cat([batches.next() for _ in range(per_pass)])
        assert len(seen.unique()) == per_pass * size
        assert 0 <= int(seen.min()) <= int(seen.max()) < samples


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=70), st.data())
def test_tree_sum_has_the_same_bits_when_complete_subtrees_are_summed_elsewhere(numbers, data):
    leaves = [{"u": torch.tensor([x], dtype=torch.float32)} for x in numbers]
    whole = Tree()
    for leaf in leaves:
        whole.push(leaf)
    pieced, position = Tree(), 0
    while position < len(leaves):
        aligned = (position & -position).bit_length() - 1 if position else 6
        fits = (len(leaves) - position).bit_length() - 1
        height = data.draw(st.integers(0, min(aligned, fits)))
        part = Tree()
        for leaf in leaves[position : position + 2**height]:
            part.push(leaf)
        pieced.push(part.total(), height)
        position += 2**height
    assert torch.equal(whole.total()["u"], pieced.total()["u"])
    assert float(whole.total()["u"]) == pytest.approx(sum(numbers), rel=1e-4, abs=1.0)


@given(
    costs=st.lists(st.floats(0.1, 10), min_size=1, max_size=150),
    workers=st.integers(1, 8),
    smallest=st.integers(0, 4),
)
def test_tasks_are_complete_subtrees_and_the_last_ones_small(costs, workers, smallest):
    parts = subtrees(costs, workers, smallest)
    assert [k for part in parts for k in part] == list(range(len(costs)))
    for part in parts:
        size, left = len(part), math.fsum(costs[part.start :])
        assert size & (size - 1) == 0
        assert part.start % size == 0
        cost = math.fsum(costs[part.start : part.stop])
        assert size <= 2**smallest or cost <= left / workers * (1 + 1e-9)
    if smallest == 0:
        assert len(parts[-1]) == 1 or workers == 1


@given(st.integers(0, 6), st.integers(0, 99))
def test_rows_are_added_as_the_tree_adds_them(height, seed):
    rows = torch.randn(2**height, 5, generator=torch.Generator().manual_seed(seed))
    tree = Tree()
    for row in rows:
        tree.push({"u": row}, temporary=True)
    assert torch.equal(sum_of_rows(rows), tree.total()["u"])


def test_a_temporary_leaf_may_change_afterwards_and_is_not_changed_by_the_sum():
    reused, tree = torch.ones(3), Tree()
    for number in (1.0, 2.0, 3.0):
        tree.push({"u": reused.fill_(number)}, temporary=True)
        assert torch.equal(reused, torch.full((3,), number))
    assert torch.equal(tree.total()["u"], torch.full((3,), 6.0))


@pytest.mark.slow
@given(
    uploads=st.lists(
        st.tuples(st.floats(0.01, 100), st.floats(-1e3, 1e3)), min_size=1, max_size=20
    ),
    data=st.data(),
)
def test_the_average_weighs_those_that_take_part(uploads, data):
    weights, numbers = zip(*uploads, strict=True)
    everyone = range(len(uploads))
    chosen = sorted(data.draw(st.sets(st.sampled_from(everyone), min_size=1)))
    ones = torch.ones(2, dtype=torch.float64)
    targets = [torch.tensor([-number, -1.0], dtype=torch.float64) for number in numbers]
    problem = Problem([Quadratic(ones, b) for b in targets], 0 * ones, weights)
    engine = Local()(problem, Rules(PGD(1.0), Zero()))
    collected = engine.collect(0, chosen, {"z": problem.start, "alpha": 1.0})
    expected = np.average([numbers[i] for i in chosen], weights=[weights[i] for i in chosen])
    found = collected.mean["gradient"].tolist()
    assert found == pytest.approx([expected, 1.0], rel=1e-12, abs=1e-9)
    share = sum(weights[i] for i in chosen) / sum(weights)
    assert collected.share == pytest.approx(share, rel=1e-12)


def test_mixing_gives_every_node_its_own_average():
    rng = np.random.default_rng(0)
    weights, uploads = rng.random((4, 4)), rng.standard_normal((4, 3))
    links = Links(torch.from_numpy(weights), (3, 3, 3, 3))
    found = Mixing(links).finish(
        [{"x": torch.from_numpy(upload)} for upload in uploads], [1.0] * len(uploads)
    )
    assert np.allclose(found["x"].numpy(), weights @ uploads, rtol=0, atol=1e-15)


def test_messages_are_counted_by_what_is_in_them():
    encoded = TopK(0.2)(torch.arange(10.0), np.random.default_rng(0))
    message = {
        "z": torch.zeros(7),
        "e": torch.zeros(3, dtype=torch.float64),
        "beta": 0.1,
        "u": encoded,
    }
    traffic = Traffic()
    traffic.up(message)
    traffic.down(message, copies=3)
    assert (traffic.floats_up, traffic.bytes_up) == (7 + 3 + 2, 7 * 4 + 3 * 8 + 2 * 4 + 2 * 1)
    assert (traffic.floats_down, traffic.bytes_down) == (3 * 12, 3 * 62)


def test_draws_depend_on_every_part_of_their_name_and_on_nothing_else():
    names = [(0, Purpose.BATCHES, 0, 0), (1, Purpose.BATCHES, 0, 0), (0, Purpose.COINS, 0, 0)]
    names += [(0, Purpose.BATCHES, 1, 0), (0, Purpose.BATCHES, 0, 1)]
    draws = [generator(*name).integers(2**62) for name in names]
    assert len(set(draws)) == len(draws)
    assert draws == [generator(*name).integers(2**62) for name in names]


def run(seed, participants=3, batch_size=4, rounds=5):
    problem = logistics(clients=6, d=5, samples=20)
    federation = Federation(
        problem,
        FedCanonPlus(0.5, 0.1, 4),
        L1(0.01),
        participants=participants,
        batch_size=batch_size,
        seed=seed,
    )
    for _ in range(rounds):
        federation.step()
    return federation


def test_same_seed_same_bits_other_seed_other_bits():
    assert torch.equal(run(0).model, run(0).model)
    assert not torch.equal(run(0).model, run(1).model)


def test_every_client_is_drawn_in_the_long_run_and_states_exist_only_for_those_that_were():
    federation = run(0, participants=1, rounds=1)
    assert len(federation.engine.clients) == 1
    for _ in range(60):
        federation.step()
    assert set(federation.engine.clients) == set(range(6))


def test_one_bad_client_is_named():
    problem = quadratics(clients=3, d=2)
    problem.clients[1].b.fill_(float("nan"))
    with pytest.raises(FedcanonError, match="client 1 diverged in round 0"):
        Federation(problem, FedAvg(), Zero()).step()


@pytest.mark.parametrize("participants", [0, 7])
def test_participants_must_exist(participants):
    with pytest.raises(FedcanonError, match="between 1 and 6"):
        Federation(logistics(6, 3, 5), FedAvg(), Zero(), participants=participants)


def test_buffers_are_averaged_and_never_penalised():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3, momentum=1.0), nn.Linear(3, 2))
    flat = FlatModule(module)
    inputs = torch.randn(20, 2) + torch.arange(20).unsqueeze(1)
    targets = torch.arange(20) % 2
    loss = nn.CrossEntropyLoss()
    clients = [
        ModuleObjective(flat, loss, inputs, targets, torch.arange(20)[k::2]) for k in range(2)
    ]
    start = flat.vector.clone()
    federation = Federation(Problem(clients, start), FedAvg(1e-9, 1), L1(1e6))
    federation.step()
    with torch.no_grad():
        hidden = [nn.functional.linear(inputs[k::2], *_first_layer(start)) for k in range(2)]
    expected = sum(h.mean(0) for h in hidden) / 2
    assert torch.allclose(federation.engine.buffers[:3], expected, rtol=1e-4)
    assert federation.cost.floats_down == 2 * (flat.layout.size + 6)


def _first_layer(vector):
    return vector[:6].view(3, 2), vector[6:9]


def test_dropout_depends_only_on_the_seed():
    def final(noise):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.Linear(8, 2))
        flat = FlatModule(module)
        inputs, targets = torch.ones(6, 2), torch.arange(6) % 2
        objective = ModuleObjective(flat, nn.CrossEntropyLoss(), inputs, targets)
        federation = Federation(
            Problem([objective, objective], flat.vector.clone()), FedAvg(0.1, 3), Zero()
        )
        torch.manual_seed(noise)
        before = torch.random.get_rng_state()
        federation.step()
        assert torch.equal(before, torch.random.get_rng_state())
        return federation.model

    assert torch.equal(final(1), final(2))


def batch_norm_problem():
    torch.manual_seed(0)
    flat = FlatModule(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)))
    inputs, targets = torch.randn(20, 2), torch.arange(20) % 2
    loss = nn.CrossEntropyLoss()
    rows = [torch.arange(20)[k::2] for k in range(2)]
    clients = [ModuleObjective(flat, loss, inputs, targets, r) for r in rows]
    return Problem(clients, flat.vector)  # not cloned, as a user may write it


def test_two_runs_on_one_problem_do_not_touch_each_other():
    problem = batch_norm_problem()
    runs = []
    for _ in range(2):
        federation = Federation(problem, FedAvg(0.1, 3), Zero())
        for _ in range(3):
            federation.step()
        runs.append((federation.model, federation.engine.buffers))
    assert torch.equal(runs[0][0], runs[1][0])
    assert torch.equal(runs[0][1], runs[1][1])


def test_a_copied_or_pickled_objective_still_has_its_gradient():
    objective = batch_norm_problem().clients[0]
    x = torch.randn(objective.layout.size, generator=torch.Generator().manual_seed(1))
    expected = objective.full_gradient(x)
    assert expected.abs().sum() > 0
    for copied in (copy.deepcopy(objective), pickle.loads(pickle.dumps(objective))):
        assert torch.equal(copied.full_gradient(x), expected)
    objective._flat.module.zero_grad()
    assert torch.equal(objective.full_gradient(x), expected)


def test_a_failed_round_leaves_every_state_as_it_was():
    problem = quadratics(clients=3, d=2)
    federation = Federation(problem, FedCanonPlus(0.2, 0.1, 2), L1(0.1))
    federation.step()
    before = {i: state["v"].clone() for i, state in federation.engine.clients.items()}
    problem.clients[2].b.fill_(float("nan"))
    with pytest.raises(FedcanonError, match="client 2 diverged in round 1"):
        federation.step()
    assert federation.rounds_done == 1
    assert all(torch.equal(federation.engine.clients[i]["v"], v) for i, v in before.items())


def test_a_method_that_needs_everyone_refuses_fewer_in_any_round():
    federation = Federation(quadratics(clients=3, d=2), FedCanonII(0.2, 0.1, 2), L1(0.1))
    with pytest.raises(FedcanonError, match="needs all 3 clients"):
        federation.step([0, 1])
    with pytest.raises(FedcanonError, match="0 participants"):
        federation.step([])


def test_the_share_of_all_clients_is_one_to_the_last_bit():
    base = quadratics(clients=7, d=2)
    problem = Problem(base.clients, base.start, np.array([0.1, 0.3, 0.7, 1e-9, 1e9, 0.2, 0.6]))
    federation = Federation(problem, FedAvg(0.1, 1), Zero())
    sent = federation.algorithm.broadcast(federation.server, 0, None)
    assert federation.engine.collect(0, list(range(7)), sent).share == 1.0


def nodes_after(W, rounds):
    """Nodes on a network, from a loop of its own: x_i and e_i as the method is published."""
    problem = quadratics(clients=3, d=4)
    mixing = (np.eye(3) + W) / 2
    x, e = np.tile(problem.start.numpy(), (3, 1)), np.zeros((3, 4))
    for t in range(rounds):
        q = x.copy()
        for _ in range(generator(0, Purpose.COINS, t).geometric(0.4)):
            for i, client in enumerate(problem.clients):
                q[i] = q[i] - 0.3 * (client.A.numpy() @ (q[i] - client.b.numpy()) + e[i])
        x = mixing @ q
        e = e + 0.4 / 0.3 * (q - x)
    return problem, x


def test_every_node_goes_on_from_its_own_average():
    W = np.array([[0.5, 0.5, 0.0], [0.5, 0.25, 0.25], [0.0, 0.25, 0.75]])
    problem, expected = nodes_after(W, 6)
    algorithm = DecentralisedProxSkip(0.3, probability=0.4, topology=tuple(map(tuple, W)))
    federation = Federation(problem, algorithm, Zero())
    for _ in range(6):
        federation.step()
    assert np.allclose(federation.server["z"].numpy(), expected, rtol=0, atol=1e-13)
    assert np.allclose(federation.model.numpy(), expected.mean(0), rtol=0, atol=1e-13)
    spread = math.sqrt(np.mean(np.sum((expected - expected.mean(0)) ** 2, axis=1)))
    assert algorithm.diagnostics(federation.server)["consensus_error"] == pytest.approx(spread)
    assert spread > 0.1


def test_nodes_have_normalisation_statistics_of_their_own_and_are_evaluated_with_the_mean():
    problem = batch_norm_problem()
    weakly = ((0.75, 0.25), (0.25, 0.75))
    apart = Federation(problem, DecentralisedProxSkip(0.1, 3, topology=weakly), Zero(), seed=1)
    together = Federation(problem, Scaffnew(0.1, 3), Zero(), seed=1)
    for federation in (apart, together):
        federation.step()
    assert apart.engine.buffers.shape == (2, 6)
    assert not torch.equal(*apart.engine.buffers)
    assert torch.allclose(apart.engine.buffers.mean(0), together.engine.buffers)
    losses = [f.engine.evaluate(f.model, gradient=False).losses for f in (apart, together)]
    assert losses[0] == pytest.approx(losses[1])
    assert torch.allclose(problem.buffers, together.engine.buffers)
    apart.step()
    assert bool(apart.model.isfinite().all())


def test_a_round_that_fails_in_the_server_leaves_the_clients_as_they_were():
    """α leaves the domain of the prox in round 3, after the clients have done their work."""

    @dataclass(frozen=True)
    class Growing(Schedule):
        start: float

        def __call__(self, t):
            return self.start * (t + 1)

    problem = quadratics(clients=3, d=4)
    federation = Federation(problem, FedCanon(Growing(0.1), 0.05, 3), MCP(1.0, 0.35, "lambda"))
    for _ in range(3):
        federation.step()
    with pytest.raises(FedcanonError, match="prox needs a step below"):
        federation.step()
    states = federation.engine.clients.values()
    assert (federation.server["e"] - sum(s["v"] for s in states) / 3).abs().max() < 1e-12


def test_participants_count_once_and_in_their_order():
    problem = quadratics(clients=3, d=4)
    one, other = (Federation(problem, FedCanonPlus(0.4, 0.05, 3), L1(0.1)) for _ in range(2))
    one.step([2, 0, 2])
    other.step([0, 2])
    assert torch.equal(one.model, other.model)
    with pytest.raises(FedcanonError, match="numbered 0 to 2"):
        one.step([3])


def test_a_diverged_run_is_not_taken_for_a_stationary_one():
    z = torch.full((4,), 1e20, dtype=torch.float64)
    assert stationarity(L1(0.1), z, torch.ones(4, dtype=torch.float64), 1.0) > 1e3
