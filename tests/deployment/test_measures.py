"""Federated evaluation: what clients say of a model, and what cannot be believed."""

import math

import pytest
import torch

from fedcanon import FedCanonPlus, Federation, Logistic, Problem, fit
from fedcanon.deployment.measuring import measures_fault, pooled_measures
from fedcanon.deployment.protocol import packed
from fedcanon.objectives.logistic import LogisticTest
from fedcanon.penalties import L1
from fedcanon.runs.measures import measure
from tests.deployment.network import World
from tests.problems import logistics, quadratics

METHOD = FedCanonPlus(0.5, 0.1, 3)


def test_measures_are_those_of_the_problem():
    there = World(logistics(clients=5), METHOD, L1(0.1), "server")
    there.step()
    engine, problem, z = there.federation.engine, there.problem, there.federation.model
    found = engine.evaluate(z, gradient=True)
    loss, gradient = problem.value_and_gradient(z)
    assert found.loss == pytest.approx(loss, rel=1e-14)
    assert found.losses == problem.losses(z)
    assert torch.allclose(found.gradient, gradient, rtol=1e-13, atol=0)


def test_the_gradient_is_not_told_of_some_clients_only():
    there = World(logistics(clients=3), METHOD, L1(0.1), "server")
    there.there = {0, 2}
    found = there.federation.engine.evaluate(there.problem.start, gradient=True)
    assert found.gradient is None
    assert len(found.losses) == 2
    federation = there.federation
    record = measure(federation.engine, federation.server, t=0, cost=federation.cost, step=1.0)
    assert record.gradient_norm is None


def test_held_out_samples_are_weighed_and_the_worst_client_is_named():
    found = {
        0: {"loss": 1.0, "held_out": 10, "test/accuracy": 0.9, "test/test_loss": 1.0},
        3: {"loss": 1.0, "held_out": 30, "test/accuracy": 0.5, "test/test_loss": 2.0},
        5: {"loss": 1.0, "held_out": 0},
    }
    assert pooled_measures(found) == pytest.approx(
        {"accuracy": 0.6, "test_loss": 1.75, "worst_accuracy": 0.5, "worst_client": 3.0}
    )
    assert pooled_measures({5: found[5]}) == {}


def test_clients_measure_on_what_they_have_held_out():
    problem = logistics(clients=2, samples=60)
    there = World(problem, METHOD, L1(0.1), "server")
    made = there.participant

    def participant(client):
        one = made(client)
        held_out = Logistic(problem.clients[client]._x[:20], [1] * 10 + [-1] * 10, intercept=False)
        one.held_out, one.held_out_samples = LogisticTest(held_out), 20
        return one

    there.participant = participant
    z = torch.randn(len(problem.start), dtype=torch.float64)
    test = there.federation.engine.evaluate(z, gradient=False).test
    own = [participant(client).held_out(z)["accuracy"] for client in (0, 1)]
    assert test["accuracy"] == pytest.approx(sum(own) / 2)
    assert test["worst_accuracy"] == min(own)


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ({"loss": 1.0, "held_out": 3, "gradient": torch.zeros(3)}, None),
        ({"loss": 1.0, "held_out": 3}, "malformed"),
        ({"held_out": 3, "gradient": torch.zeros(3)}, "malformed"),
        ({"loss": "1", "held_out": 3, "gradient": torch.zeros(3)}, "malformed"),
        ({"loss": math.nan, "held_out": 3, "gradient": torch.zeros(3)}, "not finite"),
        ({"loss": 1.0, "held_out": 3, "gradient": torch.zeros(4)}, "malformed"),
        ({"loss": 1.0, "held_out": 3, "gradient": torch.full((3,), math.inf)}, "not finite"),
    ],
)
def test_measures_that_cannot_be_believed_are_not_taken(answer, fault):
    assert measures_fault(answer, torch.zeros(3)) == fault


def test_one_clients_nonsense_does_not_end_an_evaluation():
    there = World(quadratics(clients=3, d=4), METHOD, L1(0.1), "server")
    z = there.problem.start

    def nonsense(world, message):
        reply = world.participant(message.client).answer(message)
        world.arrived.append(type(reply)(**{**vars(reply), "content": packed({"loss": z})}))

    there.fates = [nonsense]
    found = there.federation.engine.evaluate(z, gradient=False)
    assert found.losses == there.problem.losses(z)[1:]


def test_weights_are_numbers_of_samples_if_asked_for():
    problem = logistics(clients=3)
    weighted = Problem(problem.clients, problem.start, [1.0, 2.0, 5.0])
    there = World(weighted, METHOD, L1(0.1), "server")
    found = there.federation.engine.evaluate(problem.start, gradient=True)
    loss, gradient = weighted.value_and_gradient(problem.start)
    assert found.loss == pytest.approx(loss, rel=1e-14)
    assert torch.allclose(found.gradient, gradient, rtol=1e-13, atol=0)


def quadratic_world(keeper="server", method=METHOD):
    return World(quadratics(clients=4, d=3), method, L1(0.1), keeper)


def test_measures_are_those_of_a_separate_evaluation():
    there, apart = quadratic_world("client"), quadratic_world("client")
    for federation in (there.federation, apart.federation):
        federation.step()
    before, z = there.federation.server, there.federation.model
    there.federation.engine.measure_with_next_round(z, gradient=True)
    found = there.federation.step([0, 2])
    expected = apart.federation.engine.evaluate(z, gradient=True)
    assert found.losses == expected.losses
    assert torch.equal(found.gradient, expected.gradient)
    record = measure(
        there.federation.engine, before, t=1, cost=there.federation.cost, step=1.0, found=found
    )
    assert record.loss == expected.loss


def test_a_deployed_run_has_the_records_and_bits_of_a_local_one():
    accelerated = FedCanonPlus(0.5, 0.1, 3, accelerated=True)
    for method in (METHOD, accelerated):
        there = quadratic_world(method=method)
        local = Federation(there.problem, method, there.penalty)
        deployed = fit(there.federation, 7, evaluate_every=2)
        expected = fit(local, 7, evaluate_every=2)
        assert torch.equal(deployed.vector, expected.vector)
        assert [r.round for r in deployed.records] == [r.round for r in expected.records]
        for ours, theirs in zip(deployed.records, expected.records, strict=True):
            assert ours.objective == pytest.approx(theirs.objective, rel=1e-13)
            assert ours.gradient_norm == pytest.approx(theirs.gradient_norm, rel=1e-9)
            assert ours.cost.floats_up == theirs.cost.floats_up
        # One evaluation of its own, of the last model.
        assert [m.kind for m in there.asked].count("evaluate") == 4
