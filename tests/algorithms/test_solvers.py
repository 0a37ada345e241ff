"""Local steps and local subproblems against plain loops, closed forms and scipy."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize
from scipy.special import expit
from torch import nn

from fedcanon import FedAvg, FedcanonError, Federation, FlatModule, ModuleObjective
from fedcanon.algorithms import FedADMM, FedDR, FedDyn, FedPD, InverseTime
from fedcanon.compression import Encoded
from fedcanon.engines import Rules
from fedcanon.engines import work as work_module
from fedcanon.engines.work import ClientWork, CountedProx
from fedcanon.penalties import L1, MCP, Zero
from fedcanon.randomness import Purpose, generator
from tests.problems import logistics, quadratics, smoothness

QUADRATIC = quadratics(clients=2, d=6).clients[0]
LOGISTIC = logistics(clients=2, d=5, samples=23).clients[0]
CENTRE = torch.tensor([1.0, -2.0, 0.5, 3.0, -0.5, 0.1], dtype=torch.float64)


def work_on(objective, penalty=None, batch_size=None, seed=3, t=2, client=1):
    rules = Rules(FedAvg(), penalty or Zero(), batch_size, seed)
    return ClientWork(rules, objective, CountedProx(rules.penalty), t, client)


def batches(samples, size, seed=3, t=2, client=1):
    """The mini-batches as the documentation states them: a fresh permutation for every pass."""
    rng = generator(seed, Purpose.BATCHES, t, client)
    while True:
        order = rng.permutation(samples)
        for start in range(0, samples - size + 1, size):
            yield torch.from_numpy(order[start : start + size])


class Counting:
    """An objective that counts its exact gradients."""

    def __init__(self, objective):
        self.objective, self.samples, self.calls = objective, objective.samples, 0

    def full_gradient(self, x):
        self.calls += 1
        return self.objective.full_gradient(x)


@settings(deadline=None, max_examples=40)
@given(
    eta=st.floats(0.01, 100),
    tolerance=st.sampled_from([1e-3, 1e-6, 1e-9, 1e-12]),
    seed=st.integers(0, 100),
)
def test_solve_is_the_closed_form_on_quadratics(eta, tolerance, seed):
    """prox_{ηf}(y) = (A + I/η)⁻¹(Ab + y/η), and the tolerance bounds the distance from it."""
    rng = np.random.default_rng(seed)
    centre, start = (torch.from_numpy(rng.standard_normal(6)) for _ in range(2))
    A, b, eye = QUADRATIC.A.numpy(), QUADRATIC.b.numpy(), np.eye(6) / eta
    expected = np.linalg.solve(A + eye, A @ b + centre.numpy() / eta)
    step = 1 / (1 + 1 / eta)
    x = work_on(QUADRATIC).solve(centre, eta, start, step=step, steps=1, tolerance=tolerance)
    residual = QUADRATIC.full_gradient(x) + (x - centre) / eta
    assert float(residual.norm()) <= tolerance
    # The subproblem is (0.1 + 1/η)-strongly convex.
    assert np.linalg.norm(x.numpy() - expected) <= tolerance / (0.1 + 1 / eta) + 1e-13


@pytest.mark.parametrize("eta", [0.1, 1.0, 20.0])
def test_solve_is_scipys_minimiser_on_a_logistic_loss(eta):
    X, y = LOGISTIC._x, LOGISTIC._y
    centre = CENTRE[:5]

    def value(x):
        return np.logaddexp(0, -y * (X @ x)).mean() + ((x - centre.numpy()) ** 2).sum() / (2 * eta)

    def gradient(x):
        return -X.T @ (y * expit(-y * (X @ x))) / len(y) + (x - centre.numpy()) / eta

    def hessian(x):
        return (X.T * (expit(X @ x) * expit(-(X @ x)))) @ X / len(y) + np.eye(5) / eta

    oracle = optimize.minimize(
        value, np.zeros(5), jac=gradient, hess=hessian, method="trust-exact", options={"gtol": 1e-9}
    )
    polished = oracle.x - np.linalg.solve(hessian(oracle.x), gradient(oracle.x))
    step = 1 / (np.linalg.eigvalsh(X.T @ X / (4 * len(y))).max() + 1 / eta)
    solve = partial(work_on(LOGISTIC).solve, centre, eta, torch.zeros(5, dtype=torch.float64))
    x = solve(step=step, steps=1, tolerance=1e-13)
    assert np.abs(x.numpy() - polished).max() < 1e-11
    assert np.abs(polished - centre.numpy()).max() > 0.01  # not the centre itself


def test_a_tolerance_takes_no_step_more_than_it_needs():
    for tolerance in (1e-1, 1e-4, 1e-8):
        counting = Counting(QUADRATIC)
        work_on(counting).solve(CENTRE, 2.0, CENTRE, step=0.5, steps=1, tolerance=tolerance)
        x, steps = CENTRE, 0
        while float((QUADRATIC.full_gradient(x) + (x - CENTRE) / 2).norm()) > tolerance:
            x, steps = x - 0.5 * (QUADRATIC.full_gradient(x) + (x - CENTRE) / 2), steps + 1
        assert counting.calls == steps + 1  # one more to see that it is enough


def test_a_warm_start_is_used():
    counting = Counting(QUADRATIC)
    solve = partial(work_on(counting).solve, CENTRE, 2.0, step=0.5, steps=1, tolerance=1e-10)
    solution = solve(CENTRE)
    cold, counting.calls = counting.calls, 0
    assert torch.equal(solve(solution), solution)
    assert counting.calls == 1
    counting.calls = 0
    solve(solution + 1e-6)
    assert 1 < counting.calls < 0.8 * cold


def test_exact_solves_use_all_samples_whatever_the_batch_size():
    centre, start = CENTRE[:5], torch.zeros(5, dtype=torch.float64)
    options = {"step": 0.3, "steps": 1, "tolerance": 1e-9}
    whole, batched = (
        work_on(LOGISTIC, batch_size=size).solve(centre, 1.0, start, **options)
        for size in (None, 4)
    )
    assert torch.equal(whole, batched)


@pytest.mark.parametrize("batch_size", [None, 1, 5, 23])
def test_so_many_steps_of_solve_are_a_plain_loop(batch_size):
    centre, start = CENTRE[:5], CENTRE[1:]
    drawn = batches(23, batch_size or 23)
    x = start
    for _ in range(11):
        batch = next(drawn) if batch_size not in (None, 23) else None
        x = x - 0.2 * (LOGISTIC.gradient(x, batch) + (x - centre) / 1.5)
    kept = centre.clone(), start.clone()
    solve = work_on(LOGISTIC, batch_size=batch_size).solve
    solved = solve(centre, 1.5, start, step=0.2, steps=11, tolerance=0.0)
    assert float((solved - x).abs().max()) < 1e-14
    assert torch.equal(centre, kept[0])
    assert torch.equal(start, kept[1])


@pytest.mark.parametrize("batch_size", [None, 4, 10])
@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("pulled", [False, True])
@pytest.mark.parametrize("prox", [0.0, 0.3])
def test_descend_is_a_plain_loop(batch_size, shifted, pulled, prox):
    penalty = MCP(0.2, 3.0)
    start, shift, centre = CENTRE[1:], CENTRE[:5] / 7, CENTRE[:5]
    drawn = batches(23, batch_size or 23)
    x = start
    for _ in range(9):
        gradient = LOGISTIC.gradient(x, next(drawn) if batch_size else None)
        if shifted:
            gradient = gradient + shift
        if pulled:
            gradient = gradient + 0.7 * (x - centre)
        x = x - 0.1 * gradient
        if prox:
            x = penalty.prox(x, prox)
    kept = start.clone(), shift.clone(), centre.clone()
    work = work_on(LOGISTIC, penalty, batch_size)
    found = work.descend(
        start,
        0.1,
        9,
        shift=shift if shifted else None,
        pull=(centre, 0.7) if pulled else None,
        prox=prox,
    )
    assert float((found - x).abs().max()) < 1e-14
    assert work.prox.calls == (9 if prox else 0)
    for vector, before in zip((start, shift, centre), kept, strict=True):
        assert torch.equal(vector, before)


def network_objective():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    inputs, targets = torch.randn(12, 3, dtype=torch.float64), torch.arange(12) % 2
    flat = FlatModule(module)
    return ModuleObjective(flat, nn.CrossEntropyLoss(), inputs, targets), flat.vector.clone()


def test_descend_and_solve_are_plain_loops_on_a_network_that_works_in_its_own_memory():
    objective, start = network_objective()
    shift, penalty = torch.linspace(-0.1, 0.1, len(start), dtype=torch.float64), L1(0.05)
    drawn, x = batches(12, 5), start
    for _ in range(6):
        gradient = objective.gradient(x, next(drawn)).clone() + shift + 0.3 * (x - 2 * start)
        x = penalty.prox(x - 0.2 * gradient, 0.2)
    work = work_on(objective, penalty, 5)
    found = work.descend(start, 0.2, 6, shift=shift, pull=(2 * start, 0.3), prox=0.2)
    assert float((found - x).abs().max()) < 1e-14
    work.gradient(start)  # the answer is not the memory in which later work is done
    assert float((found - x).abs().max()) < 1e-14
    solved = work.solve(2 * start, 0.5, start, step=0.2, steps=1, tolerance=1e-9)
    residual = objective.full_gradient(solved) + (solved - 2 * start) / 0.5
    assert float(residual.norm()) <= 1e-9


def test_successive_calls_go_on_through_the_samples():
    drawn, x = batches(23, 5), CENTRE[:5]
    work = work_on(LOGISTIC, batch_size=5)
    for _ in range(7):
        x = x - 0.2 * LOGISTIC.gradient(x, next(drawn))
    halfway = work.descend(CENTRE[:5], 0.2, 3)
    assert float((work.descend(halfway, 0.2, 4) - x).abs().max()) < 1e-14
    assert torch.equal(work.gradient(x), LOGISTIC.gradient(x, next(drawn)))


def test_the_prox_of_a_client_is_counted_and_a_step_of_zero_is_the_identity():
    work = work_on(QUADRATIC, L1(0.5))
    assert torch.equal(work.prox(CENTRE, 0.0), CENTRE)
    assert work.prox.calls == 0
    assert work.prox(CENTRE, 1.0).tolist() == [0.5, -1.5, 0.0, 2.5, 0.0, 0.0]
    assert work.prox.calls == 1


@pytest.mark.parametrize("step", [2.5, 1e3])
def test_a_beta_that_is_too_large_ends_with_a_sentence(step):
    """Not after all the steps, where the numbers overflow."""
    counting = Counting(QUADRATIC)
    with pytest.raises(FedcanonError, match=r"use a beta near 1/\(L \+ 1/η\)") as caught:
        work_on(counting).solve(CENTRE, 1.0, CENTRE, step=step, steps=1, tolerance=1e-6)
    assert counting.calls < 10_000
    assert "\n" not in str(caught.value)


def test_a_beta_that_is_too_small_ends_with_a_sentence(monkeypatch):
    monkeypatch.setattr(work_module, "MOST_STEPS", 50)
    with pytest.raises(FedcanonError, match="was not solved to the tolerance 1e-06 in 50 gradient"):
        work_on(QUADRATIC).solve(CENTRE, 1.0, CENTRE, step=1e-3, steps=1, tolerance=1e-6)


def test_a_round_whose_subproblem_fails_changes_nothing():
    federation = Federation(quadratics(), FedDR(beta=5.0, tolerance=1e-6), L1(0.1))
    with pytest.raises(FedcanonError, match="use a beta near"):
        federation.step()
    assert federation.rounds_done == 0
    assert federation.engine.clients == {}
    assert torch.equal(federation.model, federation.problem.start)


class Recording:
    """A client's means of which only ``solve`` is used; remembers what was asked of it."""

    def __init__(self, answer):
        self.answer, self.asked = answer, []

    def solve(self, centre, eta, start, **options):
        self.asked.append((centre, eta, start, options))
        return self.answer

    def encode(self, u):
        return Encoded({"values": u}, u)


def test_the_subproblems_and_warm_starts_of_the_splitting_methods():
    """Centres, η and starts of section 3, and dual updates with the x that was computed."""
    one, two, three, z, x = (torch.full((2,), float(n)) for n in (1, 2, 3, 10, 20))
    options = {"step": 0.1, "steps": 4, "tolerance": 0.0}

    def ask(algorithm, client, **extra):
        recording = Recording(x)
        upload, state = algorithm.local(client, {"z": z, **options, **extra}, recording)
        return recording.asked, upload, state

    (asked,), upload, state = ask(FedPD(eta=0.5), {"x": one, "dual": two}, cycles=1)
    assert torch.equal(asked[0], z - 0.5 * two)
    assert asked[1:] == (0.5, one, options)
    assert torch.equal(state["dual"], two + (x - z) / 0.5)
    assert torch.equal(upload["anchor"], x + 0.5 * state["dual"])
    first, second = ask(FedPD(eta=0.5), {"x": one, "dual": two}, cycles=2)[0]
    assert first[2] is one
    assert second[2] is x
    assert torch.equal(second[0], x)  # x + ηλ − ηλ, without a communication

    (asked,), upload, state = ask(FedDyn(strength=4.0), {"g": two})
    assert torch.equal(asked[0], z + two / 4)
    assert asked[1:] == (0.25, z, options)
    assert torch.equal(state["g"], two - 4 * (x - z))
    assert torch.equal(upload["move"].vector, x - z)

    client = {"x": one, "y": two, "reflected": three}
    (asked,), upload, state = ask(FedDR(eta=0.5, relaxation=1.5), client)
    assert torch.equal(asked[0], two + 1.5 * (z - one))
    assert asked[1:] == (0.5, one, options)
    assert torch.equal(state["reflected"], 2 * x - asked[0])
    assert torch.equal(upload["change"], state["reflected"] - three)

    client = {"x": one, "dual": two, "reflected": three}
    (asked,), upload, state = ask(FedADMM(eta=2.0), client)
    assert torch.equal(asked[0], z - two / 2)
    assert asked[1:] == (0.5, one, options)
    assert torch.equal(state["dual"], two + 2 * (x - z))
    assert torch.equal(upload["change"], x + state["dual"] / 2 - three)
    (asked,), _, state = ask(FedADMM(eta=2.0, relaxation=0.5), client)
    assert torch.equal(asked[0], (z + one) / 2 - two / 2)
    assert torch.equal(state["dual"], two + 2 * (x - (z + one) / 2))


def test_a_schedule_of_tolerances_is_followed():
    """Subproblems are solved to what the round asks, no better and no worse."""
    problem = quadratics()
    algorithm = FedDR(beta=0.5, tolerance=InverseTime(1e-2, period=1.0), eta=1.0)
    federation = Federation(problem, algorithm, L1(0.3))
    assert smoothness(problem) == pytest.approx(1.0)
    for t in range(6):
        federation.step()
        for client, state in zip(problem.clients, federation.engine.clients.values(), strict=True):
            residual = client.full_gradient(state["x"]) + state["x"] - state["y"]
            assert 1e-3 / (t + 1) < float(residual.norm()) <= 1e-2 / (t + 1)
