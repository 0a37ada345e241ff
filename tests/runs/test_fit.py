"""Measures, stopping rules and the numbers in a record."""

import math
from threading import Event, Thread

import pytest
import torch

from fedcanon import (
    PGD,
    DivergenceError,
    FedcanonError,
    FedCanonPlus,
    Federation,
    Observer,
    Problem,
    Quadratic,
    fit,
    resume,
    train,
)
from fedcanon.algorithms import Schedule
from fedcanon.penalties import L1, MCP, Box
from fedcanon.runs.measures import is_small, stationarity, stationarity_step
from fedcanon.threads import one_thread
from tests.problems import golden, logistics, quadratics, vector
from tests.waiting import PATIENCE


def test_records_before_during_and_after():
    result = fit(Federation(golden(), PGD(0.2), L1(0.1)), 7, evaluate_every=3)
    assert [record.round for record in result.records] == [0, 3, 6, 7]
    assert result.stopped == "all rounds done"
    first = result.records[0]
    assert first.loss == pytest.approx((0.125 + 2.25 + 9.375 + 1.125) / 2)
    assert first.objective == pytest.approx(first.loss + 0.1)
    assert first.cost.floats_up == 0
    assert result.last.cost.floats_up == result.last.cost.floats_down == 7 * 2 * 2
    assert result.last.cost.server_prox == 7
    assert torch.equal(result.vector, fit(Federation(golden(), PGD(0.2), L1(0.1)), 7).vector)


def test_only_test_data_are_measured_where_clients_are_left_out():
    problem = logistics(clients=3, d=4)
    tested = Problem(problem.clients, problem.start, test=lambda z: {"accuracy": float(z.sum())})
    whole = fit(Federation(tested, PGD(0.2), L1(0.01)), 4, evaluate_every=2)
    short = fit(Federation(tested, PGD(0.2), L1(0.01)), 4, evaluate_every=2, clients=False)
    assert torch.equal(short.vector, whole.vector)
    assert [r.test for r in short.records] == [r.test for r in whole.records]
    assert all(math.isnan(r.loss) and not r.client_losses for r in short.records)
    assert all(r.gradient_norm is None for r in short.records)
    with pytest.raises(FedcanonError, match=r"evaluate\.clients = false"):
        fit(Federation(tested, PGD(0.2), L1(0.01)), 4, clients=False, gradient_tolerance=1e-3)


def test_zeros_are_counted_exactly():
    result = fit(Federation(golden(), PGD(0.3), L1(0.1)), 100)
    assert result.vector.tolist()[1] == 0
    assert (result.last.zeros, result.last.sparsity) == (1, 0.5)


def test_stationarity_is_the_gradient_without_penalty_and_zero_at_the_optimum():
    problem = golden()
    gradient = problem.value_and_gradient(vector(0.5, 0.5))[1]
    assert stationarity(L1(0.0), vector(0.5, 0.5), gradient, 0.7) == pytest.approx(
        float(gradient.norm())
    )
    optimum = vector(-1.2, 0)
    at_optimum = problem.value_and_gradient(optimum)[1]
    assert stationarity(L1(0.1), optimum, at_optimum, 0.7) < 1e-15


def test_the_step_of_the_measure_stays_inside_the_domain():
    assert stationarity_step(L1(1.0)) == 1.0
    assert stationarity_step(MCP(1.0, 0.5, "lambda")) == 0.25


def test_stops_at_a_tolerance_on_the_gradient_norm():
    federation = Federation(golden(), FedCanonPlus(0.2, 0.1, 2), L1(0.1))
    result = fit(federation, 1000, gradient_tolerance=1e-8)
    assert result.last.gradient_norm <= 1e-8 < result.records[-2].gradient_norm
    assert result.stopped == "‖G‖ ≤ 1e-08"


def test_stops_when_the_objective_stops_changing():
    result = fit(Federation(golden(), PGD(0.2), L1(0.1)), 1000, objective_tolerance=1e-6)
    before, last = result.records[-2:]
    assert abs(last.objective - before.objective) <= 1e-6 * before.objective
    assert result.last.round < 1000


def test_the_gradient_is_left_out_where_it_is_not_asked_for():
    result = fit(Federation(golden(), PGD(0.2), L1(0.1)), 2, gradient=False)
    assert result.last.gradient_norm is None
    assert is_small(golden())
    assert result.last.flat()["server_prox"] == 2


def test_divergence_ends_with_a_sentence():
    with pytest.raises(FedcanonError, match="diverged"):
        fit(Federation(quadratics(), PGD(1e30), L1(0.1)), 50)


def test_a_step_outside_the_domain_of_the_prox_is_refused_before_any_work():
    with pytest.raises(FedcanonError, match="below 1/ρ = 4"):
        Federation(logistics(2, 3, 5), PGD(4.0), MCP(0.1, 4.0, "lambda"))


@pytest.mark.parametrize("options", [{"rounds": 0}, {"rounds": 5, "evaluate_every": 0}])
def test_empty_runs_are_refused(options):
    with pytest.raises(FedcanonError, match="at least 1"):
        fit(Federation(golden(), PGD(0.2), L1(0.1)), **options)


def test_seconds_of_training_and_measuring_are_apart():
    result = fit(Federation(logistics(), PGD(0.2), L1(0.1)), 5)
    seconds = [record.cost.seconds for record in result.records]
    assert seconds[0] == 0
    assert seconds == sorted(seconds)
    assert all(record.evaluation_seconds > 0 for record in result.records)
    assert math.isfinite(seconds[-1])


def test_a_tolerance_on_the_gradient_norm_measures_it_even_if_not_asked_for():
    federation = Federation(golden(), FedCanonPlus(0.2, 0.1, 2), L1(0.1))
    result = fit(federation, 1000, gradient=False, gradient_tolerance=1e-6)
    assert 5 < result.last.round < 1000
    assert result.last.gradient_norm <= 1e-6


def test_a_start_outside_a_constraint_does_not_stop_the_run():
    federation = Federation(golden(), PGD(0.2), Box(-2.0, -0.5))
    result = fit(federation, 1000, objective_tolerance=1e-9)
    assert math.isinf(result.records[0].objective)
    assert result.vector[0] == pytest.approx(-1.25, abs=1e-3)
    assert result.vector[1] == -0.5


def test_the_step_of_the_measure_is_refused_by_its_own_name():
    federation = Federation(golden(), PGD(0.2), MCP(1.0, 4.0, "lambda"))
    with pytest.raises(FedcanonError, match=r"evaluate\.step cannot be 9"):
        fit(federation, 3, gradient_step=9.0)


def test_a_schedule_that_grows_out_of_the_domain_is_refused_before_any_work():
    class WarmUp(Schedule):
        start = 0.1

        def __call__(self, t):
            return 0.1 * (t + 1)

    federation = Federation(golden(), PGD(WarmUp()), MCP(1.0, 1.0, "lambda"))
    with pytest.raises(FedcanonError, match="below 1/ρ = 1"):
        fit(federation, 20)


class Patience(Observer):
    """Ends a run after some rounds, and counts them in the records."""

    def __init__(self, rounds):
        self.rounds, self.done, self.ended = rounds, 0, None

    def numbers(self):
        return {"budget_left": self.rounds - self.done}

    def round(self, t):
        self.done = t
        return "the budget is spent" if t >= self.rounds else None

    def end(self, stopped):
        self.ended = stopped


def test_an_observer_may_end_a_run_and_add_numbers_to_its_records():
    patience = Patience(3)
    result = fit(Federation(golden(), PGD(0.2), L1(0.1)), 10, observers=[Observer(), patience])
    assert result.stopped == patience.ended == "the budget is spent"
    assert [record.round for record in result.records] == [0, 1, 2, 3]
    assert [record.diagnostics for record in result.records] == [
        {"budget_left": left} for left in (3, 3, 2, 1)
    ]


def test_a_run_that_an_observer_ends_is_kept_and_can_go_on(tmp_path):
    settings = {"model": "linear", "clients": {"count": 2}, "rounds": 6}
    stopped = train(settings, folder=tmp_path / "run", observers=[Patience(2)])
    assert (stopped.last.round, stopped.stopped) == (2, "the budget is spent")
    gone_on = resume(tmp_path / "run")
    assert torch.equal(gone_on.vector, train(settings).vector)


def test_divergence_has_a_type_of_its_own():
    with pytest.raises(DivergenceError, match="diverged"):
        fit(Federation(quadratics(), FedCanonPlus(1e30, 1e30, 10), L1(0.1)), 20)


class Threads(Observer):
    """Looks at how many threads there are in a run."""

    def round(self, t):
        self.found = torch.get_num_threads()


def test_a_run_has_one_thread_and_gives_the_others_back():
    before, watch = torch.get_num_threads(), Threads()
    torch.set_num_threads(3)
    try:
        fit(Federation(golden(), PGD(0.2), L1(0.1)), 2, observers=[watch])
        assert (watch.found, torch.get_num_threads()) == (1, 3)
        with pytest.raises(FedcanonError):
            fit(Federation(golden(), PGD(0.2), L1(0.1)), 0)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


class Clock(Quadratic):
    """Notes how many threads there are when its gradient is taken."""

    seen = ()

    def gradient(self, x, batch):
        self.seen = {*self.seen, torch.get_num_threads()}
        return super().gradient(x, batch)


def test_a_single_round_has_one_thread_too():
    before, client = torch.get_num_threads(), Clock(torch.ones(2), torch.ones(2))
    torch.set_num_threads(3)
    try:
        Federation(Problem([client], torch.zeros(2)), FedCanonPlus(0.1, 0.1, 2), L1(0.1)).step()
        assert (client.seen, torch.get_num_threads()) == ({1}, 3)
    finally:
        torch.set_num_threads(before)


def test_runs_at_the_same_time_give_the_threads_back():
    """A thread that begins while another is limited must not take that for the usual number."""
    before, events, found = torch.get_num_threads(), [Event(), Event()], []

    def first():
        with one_thread():
            events[0].set()
            assert events[1].wait(PATIENCE)
        found.append(torch.get_num_threads())

    def second():
        assert events[0].wait(PATIENCE)
        with one_thread(), one_thread():
            events[1].set()
            threads[0].join(PATIENCE)
            found.append(torch.get_num_threads())
        found.append(torch.get_num_threads())

    def later():
        found.append(torch.get_num_threads())

    torch.set_num_threads(3)
    threads = [Thread(target=first), Thread(target=second)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        threads.append(Thread(target=later))
        threads[-1].start()
        threads[-1].join(PATIENCE)
        assert found == [3, 1, 3, 3]
    finally:
        torch.set_num_threads(before)
