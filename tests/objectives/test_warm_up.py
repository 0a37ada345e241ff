"""The step size that short trials on the clients find."""

import numpy as np
import pytest
import torch
from torch import nn

from fedcanon import FlatModule, ModuleObjective, Problem, Quadratic
from fedcanon.objectives import ModuleClients, warm_up
from fedcanon.objectives.warm_up import MEASURED, STEPS, TRIED, best_step, trial_losses
from tests.problems import quadratics


def network(*layers, inputs=None) -> Problem:
    torch.manual_seed(0)
    flat = FlatModule(nn.Sequential(*layers))
    inputs = torch.randn(60, 5) if inputs is None else inputs
    targets = (inputs[:, 0] > 0).long()
    clients = ModuleClients(flat, nn.CrossEntropyLoss(), inputs, targets, [20, 40])
    return Problem(clients, flat.vector)


def step_for(problem):
    rng = np.random.default_rng(0)
    losses = [trial_losses(client, problem.start, None, rng) for client in problem.clients]
    return best_step(losses, problem.weights)


@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_it_finds_the_best_step_on_quadratics(scale):
    problem = quadratics()
    means = np.zeros(len(TRIED))
    for client in problem.clients:
        client.A.mul_(scale)
        A, b = client.A.numpy(), client.b.numpy()
        at_start = problem.start.numpy() - b
        for position, step in enumerate(TRIED):
            moved = np.linalg.matrix_power(np.eye(len(A)) - step * A, STEPS) @ at_start
            means[position] += min(moved @ A @ moved / 2, at_start @ A @ at_start)
    assert step_for(problem) == TRIED[means.argmin() - 1]


def test_the_result_is_reproducible_and_the_problem_is_unchanged():
    problem = network(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 2))
    found = list[list[float]]()
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.random.get_rng_state()
        rng = np.random.default_rng(0)
        found.append(trial_losses(problem.clients[1], problem.start, 16, rng))
        assert torch.equal(torch.random.get_rng_state(), before)
        assert torch.equal(problem.buffers, problem.start_buffers)
    assert found[0] == found[1]
    assert len(found[0]) == len(TRIED)
    assert len(set(found[0])) > 6


def test_far_too_large_and_too_small_steps_are_not_tried():
    problem, tried = quadratics(clients=1), []
    client = problem.clients[0]

    class Counted(Quadratic):
        def descend_(self, x, batches, step, shift=None):
            tried.append(step)
            super().descend_(x, batches, step, shift)

    first = client.value(problem.start)
    counted = Counted(100 * client.A, client.b)  # L = 100: steps above 1/50 diverge
    losses = trial_losses(counted, problem.start, None, np.random.default_rng(0))
    assert max(tried) < 0.5
    assert min(tried) == TRIED[0]
    assert losses[-1] == pytest.approx(200 * first)
    flat = Counted(0.01 * client.A, client.b)
    tried.clear()
    losses = trial_losses(flat, problem.start, None, np.random.default_rng(0))
    assert max(tried) == TRIED[-1]
    assert min(tried) > TRIED[4]
    assert losses[0] == pytest.approx(0.01 * first)


def test_a_trial_is_measured_on_some_of_many_samples_and_trained_on_all(monkeypatch):
    torch.manual_seed(0)
    flat = FlatModule(nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2)))
    inputs, measured, trained = torch.randn(5000, 5), set[int](), set[int]()
    targets = (inputs[:, 0] > 0).long()

    class Noted(ModuleObjective):
        def value(self, x):
            measured.add(self.samples)
            return super().value(x)

        def descend_(self, x, batches, step, shift=None):
            trained.update(torch.cat(batches).tolist())
            super().descend_(x, batches, step, shift)

    client = Noted(flat, nn.CrossEntropyLoss(), inputs, targets)
    start = flat.vector.clone()
    found = trial_losses(client, start, 100, np.random.default_rng(0))
    assert measured == {MEASURED}
    assert len(trained) > 3000
    monkeypatch.setattr(warm_up, "MEASURED", 5000)
    exact = trial_losses(client, start, 100, np.random.default_rng(0))
    assert best_step([found], [1.0]) == best_step([exact], [1.0])
    assert found == pytest.approx(exact, rel=0.1)


def test_clients_that_are_content_with_any_step_have_no_say():
    careful = [2.0, 1.0, 0.5, *[4.0] * (len(TRIED) - 3)]
    content = np.linspace(0.02, 0.01, len(TRIED)).tolist()
    assert best_step([careful, *[content] * 9], [1.0] * 10) == TRIED[1]


def test_a_loss_that_is_no_number_counts_as_twice_that_at_the_start():
    problem = network(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2), inputs=1e4 * torch.randn(60, 5))
    client, rng = problem.clients[0], np.random.default_rng(0)
    losses = trial_losses(client, problem.start, 8, rng)
    assert max(losses) == 2 * client.value(problem.start)


def test_if_no_step_helps_it_is_the_smallest():
    problem = quadratics()
    for client in problem.clients:
        client.A.mul_(1e4)
    assert step_for(problem) == TRIED[0]
