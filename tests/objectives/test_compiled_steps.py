"""Compiled local steps: as autograd says, on one thread, and nothing is read that is not there."""

import multiprocessing
import threading

import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits
from torch import nn

from fedcanon import FedcanonError, FedCanonPlus, Federation
from fedcanon.engines import Local
from fedcanon.objectives import FlatModule, ModuleClients, ModuleObjective
from fedcanon.penalties import L1
from fedcanon.threads import one_blas_thread
from tests.engines.networks import classifiers

LIMIT = "fedcanon.objectives.compiled_steps.WORTH_COMPILING"


def client(dtype=torch.float64):
    torch.manual_seed(0)
    layers = nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4, bias=False), nn.ReLU(), nn.Linear(4, 3)
    module = nn.Sequential(nn.Flatten(), *layers).to(dtype)
    inputs, targets = torch.randn(20, 2, 3, dtype=dtype), torch.randint(3, (20,))
    own = ModuleClients(FlatModule(module), nn.CrossEntropyLoss(), inputs, targets, [20])[0]
    by_autograd = ModuleObjective(FlatModule(module), nn.CrossEntropyLoss(), inputs, targets)
    return own, by_autograd


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("shifted", [True, False])
@pytest.mark.parametrize("whole", [True, False])
def test_steps_are_those_of_autograd(compiled, shifted, whole, monkeypatch):
    if not compiled:
        monkeypatch.setattr(LIMIT, 0)
    own, by_autograd = client()
    start = torch.randn(own.layout.size, dtype=torch.float64)
    shift = torch.randn_like(start) if shifted else None
    batches = [None] * 4 if whole else list(torch.randint(20, (4, 7)))
    x, expected = start.clone(), start.clone()
    own.descend_(x, batches, 0.3, shift)
    for batch in batches:
        expected -= 0.3 * (by_autograd.gradient(expected, batch) + (shift if shifted else 0))
    assert torch.allclose(x, expected, rtol=0, atol=1e-13)
    assert not torch.allclose(x, start)


def test_samples_of_a_client_that_has_some_of_them():
    own, by_autograd = client()
    own._rows = by_autograd._rows = torch.tensor([3, 1, 19, 8])
    x = torch.randn(own.layout.size, dtype=torch.float64)
    batch = torch.tensor([2, 0])
    expected = x - 0.3 * by_autograd.gradient(x, batch)
    own.descend_(x, [batch], 0.3)
    assert torch.allclose(x, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("target", [3, -1])
def test_a_target_that_is_no_class_is_an_error(target):
    own, _ = client()
    own.targets[5] = target
    with pytest.raises(IndexError, match="a target is no class of the model"):
        own.descend_(torch.zeros(own.layout.size, dtype=torch.float64), [torch.tensor([4, 5])], 0.1)


def test_such_an_error_names_the_client():
    problem = classifiers(clients=3, hidden=(5,), dtype=torch.float32)
    problem.clients.targets[problem.clients.offsets[1] :] = 99
    federation = Federation(problem, FedCanonPlus(0.1, 0.1, 9), L1(0.1), batch_size=2)
    with pytest.raises(FedcanonError, match="client 1 failed in round 0: IndexError"):
        federation.step()


def threads_of_products():
    found = [each for each in threadpool_info() if each["user_api"] == "blas"]
    return {each["num_threads"] for each in found if "scipy" in each["filepath"]}


def test_products_are_on_one_thread_whoever_computes_them():
    found = []

    def compute():
        with one_blas_thread():
            found.append(threads_of_products())

    compute()  # loads the library
    threadpool_limits(2, user_api="blas").unregister()
    usual = threads_of_products()
    threads = [threading.Thread(target=compute) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [{1}] * 5
    assert threads_of_products() == usual


def test_a_forked_process_does_not_wait_for_threads_that_it_has_not():
    with one_blas_thread():
        child = multiprocessing.get_context("fork").Process(target=compute_in_a_child)
        child.start()
        child.join(120)
    assert child.exitcode == 0


def compute_in_a_child():
    with one_blas_thread():
        pass


@pytest.mark.slow
def test_the_bits_do_not_depend_on_threads_and_processes():
    problem = classifiers(clients=3, hidden=(200,), dtype=torch.float32)
    models = []
    for threads, workers in ((1, None), (2, None), (2, 2)):
        with threadpool_limits(threads, user_api="blas"):
            federation = Federation(
                problem,
                FedCanonPlus(0.1, 0.1, 5),
                L1(1e-3),
                batch_size=4,
                engine=Local(workers),
            )
            for _ in range(2):
                federation.step()
            federation.close()
        models.append(federation.model)
    assert torch.equal(models[0], models[1])
    assert torch.equal(models[0], models[2])
