"""Losses of many small clients, computed in groups."""

import pytest
import torch
from torch import nn

from fedcanon import FedAvg, Federation, FlatModule, Local, Problem
from fedcanon.engines.tasks import group_height
from fedcanon.objectives import ModuleClients
from fedcanon.penalties import L1


def problem(clients=77, largest=9, loss=None, weights=()):
    """Clients of 1 to ``largest`` samples and a network with normalisation."""
    draws = torch.Generator().manual_seed(0)
    sizes = torch.randint(1, largest + 1, (clients,), generator=draws).tolist()
    inputs = torch.randn(sum(sizes), 5, generator=draws)
    targets = torch.randint(3, (sum(sizes),), generator=draws)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        flat = FlatModule(nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)))
    own = ModuleClients(flat, loss or nn.CrossEntropyLoss(), inputs, targets, sizes)
    return Problem(own, flat.vector, weights)


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
    assert one.loss == several.loss
    if gradient:
        assert torch.equal(one.gradient, several.gradient)


def test_clients_with_many_samples_or_another_loss_are_measured_one_by_one():
    assert group_height(problem(clients=3, largest=1000)) == 0
    own = problem(loss=nn.CrossEntropyLoss(label_smoothing=0.1))
    assert group_height(own) == 0
    assert measured(own, gradient=False).losses == own.losses(own.start)
