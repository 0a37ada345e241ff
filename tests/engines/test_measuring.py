"""Losses of many small clients, computed in groups, and tests, computed in parts."""

import pytest
import torch
from torch import nn

from fedcanon import FedAvg, FedcanonError, Federation, FlatModule, Local, Problem
from fedcanon.engines.tasks import group_height
from fedcanon.objectives import ModuleClients, ModuleObjective
from fedcanon.objectives.module import ModuleTest
from fedcanon.penalties import L1
from fedcanon.runs.measures import Cost, measure

HELD_OUT = 2500
"""Samples of the test: three parts for three workers, the last of them without a whole chunk."""


def problem(clients=77, largest=9, loss=None, weights=(), smallest=1):
    """Clients of ``smallest`` to ``largest`` samples and a network with normalisation."""
    draws = torch.Generator().manual_seed(0)
    sizes = torch.randint(smallest, largest + 1, (clients,), generator=draws).tolist()
    inputs = torch.randn(sum(sizes), 5, generator=draws)
    targets = torch.randint(3, (sum(sizes),), generator=draws)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        flat = FlatModule(nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)))
    loss = loss or nn.CrossEntropyLoss()
    own = ModuleClients(flat, loss, inputs, targets, sizes)
    rows = torch.randint(len(inputs), (HELD_OUT,), generator=draws)
    test = ModuleTest(ModuleObjective(flat, loss, inputs[rows], targets[rows]))
    return Problem(own, flat.vector, weights, test)


def measured(given, gradient, workers=None):
    engine = Local(workers=workers)
    federation = Federation(given, FedAvg(0.1, 2), L1(0.01), batch_size=2, engine=engine)
    try:
        return federation.engine.evaluate(given.start, gradient=gradient)
    finally:
        federation.close()


@pytest.mark.parametrize("gradient", [False, True])
def test_groups_have_the_losses_and_the_gradient_of_single_clients(gradient):
    given = problem(weights=[1 + client % 5 for client in range(77)])
    assert 2 << group_height(given) < 77  # there are several groups
    found = measured(given, gradient)
    losses, expected = given.losses_and_gradient(given.start)
    torch.testing.assert_close(torch.tensor(found.losses), torch.tensor(losses))
    assert found.loss == pytest.approx(given.mean(losses))
    if gradient:
        torch.testing.assert_close(found.gradient, expected, atol=1e-6, rtol=1e-4)
    else:
        assert found.gradient is None


@pytest.mark.slow
@pytest.mark.parametrize("gradient", [False, True])
def test_groups_have_the_same_bits_for_any_number_of_workers(gradient):
    given = problem(clients=301)
    one, several = measured(given, gradient), measured(given, gradient, workers=3)
    assert one.losses == several.losses
    assert one.test == several.test
    assert one.loss == several.loss
    if gradient:
        assert torch.equal(one.gradient, several.gradient)


def test_clients_with_many_samples_or_another_loss_are_measured_one_by_one():
    assert group_height(problem(clients=3, largest=1000)) == 0
    own = problem(loss=nn.CrossEntropyLoss(label_smoothing=0.1))
    assert group_height(own) == 0
    assert measured(own, gradient=False).losses == own.losses(own.start)


@pytest.mark.parametrize("workers", [None, 2, 3])
def test_a_test_without_clients_sees_the_statistics_of_the_model(workers):
    given = problem(clients=5, smallest=2)
    engine = Local(workers=workers)
    federation = Federation(given, FedAvg(0.5, 2), L1(0.01), batch_size=2, engine=engine)
    for _ in range(5):
        federation.step()
    found = [
        measure(federation.engine, federation.server, t=5, cost=Cost(), step=None, clients=clients)
        for clients in (True, False)
    ]
    federation.close()
    assert found[0].test == found[1].test
    given.buffers.copy_(federation.engine.model_buffers)
    assert found[0].test == given.test(federation.model)
    given.buffers.copy_(given.start_buffers)
    assert found[0].test["test_loss"] != given.test(federation.model)["test_loss"]


def test_parts_of_a_test_are_all_its_samples():
    test = problem().test
    for most in (1, 2, 3, 100):
        parts = test.parts(most)
        assert [row for part in parts for row in range(HELD_OUT)[part]] == list(range(HELD_OUT))
        assert len(parts) == min(most, 3)


@pytest.mark.parametrize("workers", [None, 2])
def test_a_test_that_fails_is_a_sentence(workers):
    given = problem(clients=5)
    given.test.held_out.targets[-1] = 3  # which is no class
    with pytest.raises(FedcanonError, match=r"^the test of the model failed: IndexError"):
        measured(given, gradient=False, workers=workers)
