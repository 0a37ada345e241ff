"""Clients that take their local steps together: the same to rounding, the same bits anywhere."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedcanon import FedcanonError, FedCanonPlus, Federation
from fedcanon.algorithms import ALGORITHMS
from fedcanon.compression import TopK
from fedcanon.engines import Local
from fedcanon.objectives import ModuleObjective
from fedcanon.objectives.perceptron import perceptron_of
from fedcanon.objectives.stacked import StackedModule
from fedcanon.penalties import L1, MCP
from fedcanon.runs.build import build
from fedcanon.runs.config import load_config
from tests.engines.networks import algorithm, classifiers, classifiers_for

TOGETHER = [name for name in ALGORITHMS if "decentralised" not in name]


def trained(problem, method, *, vectorised, batch_size=8, workers=None, **settings):
    participants = 39 if method.partial_participation else None
    federation = Federation(
        problem,
        method,
        MCP(1e-3),
        participants=participants,
        batch_size=batch_size,
        engine=Local(workers, vectorised),
        **settings,
    )
    for _ in range(3):
        federation.step()
    federation.close()
    return federation


def require_close(one, other):
    assert torch.allclose(one.model, other.model, rtol=0, atol=1e-12)
    for client, state in one.engine.clients.items():
        for name, entry in other.engine.clients[client].items():
            assert torch.allclose(
                torch.as_tensor(state[name]), torch.as_tensor(entry), rtol=1e-9, atol=1e-11
            )
    costs = [{**vars(federation.cost), "seconds": 0} for federation in (one, other)]
    assert costs[0] == costs[1]


@pytest.mark.parametrize("name", TOGETHER)
@pytest.mark.parametrize("batch_size", [8, None])
def test_every_method_agrees_with_its_clients_one_by_one(name, batch_size):
    problem = classifiers_for(name, clients=45, dtype=torch.float64)  # some smaller than 8
    runs = [
        trained(problem, algorithm(name), vectorised=vectorised, batch_size=batch_size)
        for vectorised in (False, True)
    ]
    require_close(*runs)


def test_compressed_uploads_agree():
    problem = classifiers(clients=45, dtype=torch.float64)
    method = FedCanonPlus(0.05, 0.05, 3)
    runs = [
        trained(problem, method, vectorised=vectorised, compressor=TopK(0.3))
        for vectorised in (False, True)
    ]
    require_close(*runs)


@pytest.mark.slow
def test_any_number_of_processes_gives_the_same_bits():
    problem, method = classifiers(clients=45), FedCanonPlus(0.05, 0.05, 3)
    models = [
        trained(problem, method, vectorised=True, workers=workers).model for workers in (None, 2, 3)
    ]
    assert all(torch.equal(models[0], model) for model in models)


@given(n=st.integers(1, 9), batch=st.integers(1, 7), seed=st.integers(0, 99), deep=st.booleans())
@settings(deadline=None, max_examples=40)
def test_stacked_gradients_are_the_gradients_of_the_clients(n, batch, seed, deep):
    hidden = (5, 4) if deep else ()
    problem = classifiers(clients=n, hidden=hidden, sizes=(7, 9), dtype=torch.float64, seed=seed)
    torch.manual_seed(seed)
    x = torch.randn(n, len(problem.start), dtype=torch.float64)
    rows = torch.stack([torch.randperm(7)[:batch] for _ in range(n)])
    sizes = torch.full((n,), batch)
    stacked = StackedModule(problem.clients, range(n))
    found = stacked.gradient(x, rows, sizes)
    stacked.vector.copy_(x)
    stacked.descend_(rows[None], sizes, 0.5)
    clients = problem.clients
    for k in range(n):
        own = slice(clients.offsets[k], clients.offsets[k + 1])
        by_autograd = ModuleObjective(
            clients.flat, clients.loss, clients.inputs[own], clients.targets[own]
        )
        expected = by_autograd.gradient(x[k], rows[k]).clone()
        assert torch.allclose(found[k], expected, rtol=0, atol=1e-12)
        assert torch.allclose(stacked.vector[k], x[k] - 0.5 * expected, rtol=0, atol=1e-12)
        alone = x[k].clone()
        clients[k].descend_(alone, [rows[k]], 0.5)
        assert torch.allclose(alone, x[k] - 0.5 * expected, rtol=0, atol=1e-12)
        assert torch.allclose(clients[k].gradient(x[k], rows[k]), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("hidden", [(), (5, 4)])
def test_several_steps_with_a_shift_and_batches_of_several_sizes(compiled, hidden, monkeypatch):
    if not compiled:
        monkeypatch.setattr("fedcanon.objectives.compiled_steps.WORTH_COMPILING", 0)
    problem = classifiers(clients=3, hidden=hidden, sizes=(7, 9), dtype=torch.float64)
    clients, sizes, step = problem.clients, torch.tensor([5, 2, 7]), 0.3
    torch.manual_seed(0)
    start, shift = torch.randn(2, 3, len(problem.start), dtype=torch.float64)
    samples = torch.randint(7, (4, 3, 7))
    stacked = StackedModule(clients, range(3))
    stacked.vector.copy_(start)
    stacked.descend_(samples, sizes, step, shift)
    for k in range(3):
        own = slice(clients.offsets[k], clients.offsets[k + 1])
        by_autograd = ModuleObjective(
            clients.flat, clients.loss, clients.inputs[own], clients.targets[own]
        )
        x = start[k].clone()
        for rows in samples[:, k, : sizes[k]]:
            x -= step * (by_autograd.gradient(x, rows) + shift[k])
        assert torch.allclose(stacked.vector[k], x, rtol=0, atol=1e-13)


def test_a_model_that_is_not_finite_stays_so():
    problem = classifiers(clients=2, hidden=(5,), dtype=torch.float32)
    stacked = StackedModule(problem.clients, range(2))
    stacked.vector.copy_(problem.start)
    stacked.vector[1, 0] = float("nan")
    stacked.descend_(torch.zeros(1, 2, 3, dtype=torch.int64), torch.tensor([3, 3]), 0.1)
    assert stacked.vector[0].isfinite().all()
    assert not stacked.vector[1].isfinite().all()


def stackable(*layers, loss=None):
    module = nn.Sequential(nn.Flatten(), nn.Linear(6, 3), *layers)
    return perceptron_of(module, loss or nn.CrossEntropyLoss()) is not None


def frozen():
    layer = nn.Linear(3, 3)
    layer.bias.requires_grad_(False)
    return layer


def watched():
    layer = nn.Linear(3, 3)
    layer.register_forward_hook(lambda *_: None)
    return layer


def test_only_linear_layers_and_relu_under_plain_cross_entropy_are_done_by_hand():
    assert stackable()
    assert stackable(nn.ReLU(), nn.Linear(3, 3, bias=False))
    assert stackable(nn.Sequential(nn.ReLU(), nn.Linear(3, 2)), nn.Linear(2, 2))
    tied = nn.Linear(3, 3)
    for layers in (
        [nn.Dropout(0.5)],
        [nn.BatchNorm1d(3)],
        [nn.Tanh()],
        [nn.ReLU()],  # outputs that are cut at 0
        [nn.Flatten()],
        [frozen()],
        [watched()],
        [tied, nn.ReLU(), tied],
    ):
        assert not stackable(*layers)
    assert not stackable(loss=nn.CrossEntropyLoss(label_smoothing=0.1))
    assert not stackable(loss=nn.CrossEntropyLoss(weight=torch.ones(3)))
    assert not stackable(loss=nn.CrossEntropyLoss(ignore_index=0))
    assert perceptron_of(nn.Linear(6, 3), nn.CrossEntropyLoss()) is None


def test_a_problem_that_cannot_be_stacked_is_refused_when_it_is_asked_for():
    with pytest.raises(FedcanonError, match=r"engine\.vectorised is for linear models"):
        Federation(classifiers(norm=True), FedCanonPlus(), L1(0.1), engine=Local(vectorised=True))


def decided(*given):
    return build(load_config(None, ["data.name=digits", *given])).engine.vectorised


def test_the_rule_looks_at_sizes_only_and_a_setting_overrides_it():
    assert decided("model.name=linear")
    assert not decided()  # the default network spends its time in arithmetic
    assert not decided("model.name=linear", "engine.vectorised=false")
    assert decided("engine.vectorised=true")
    assert not decided("model.name=linear", "clients.participants=1")
    ring = ("algorithm.name=decentralised-proxskip", "algorithm.topology=ring")
    assert not decided("model.name=linear", *ring)
