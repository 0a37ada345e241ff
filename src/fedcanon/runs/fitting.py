"""The training loop: it runs rounds, takes measures and decides when to stop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor

from fedcanon.algorithms import State
from fedcanon.engines import Evaluation, MeasuresWhileTraining
from fedcanon.errors import DivergenceError, FedcanonError
from fedcanon.penalties import Penalty
from fedcanon.runs.federation import Federation
from fedcanon.runs.measures import Cost, Record, is_small, measure, stationarity_step
from fedcanon.runs.observers import Observer
from fedcanon.runs.result import Result
from fedcanon.threads import one_thread

ALL_ROUNDS = "all rounds done"
"""Why a run ended that met no tolerance and was not stopped."""


@dataclass(frozen=True)
class _Moment:
    """What a record tells of, kept until the measures are there."""

    t: int
    server: State
    buffers: Tensor
    cost: Cost
    step_scale: float
    distances: dict[int, float]
    drops: dict[int, int]

    @classmethod
    def now(cls, federation: Federation) -> _Moment:
        """Return the current moment of a federation."""
        return cls(
            federation.rounds_done,
            federation.server,
            federation.engine.buffers,
            replace(federation.cost),
            federation.step_scale,
            federation.distances,
            dict(federation.drops),
        )


@one_thread()
def fit(
    federation: Federation,
    rounds: int,
    *,
    evaluate_every: int = 1,
    clients: bool = True,
    gradient: bool | None = None,
    gradient_step: float | None = None,
    gradient_tolerance: float = 0.0,
    objective_tolerance: float = 0.0,
    may_slow_down: bool = False,
    records: Sequence[Record] = (),
    observers: Sequence[Observer] = (),
) -> Result:
    """Run a federation for ``rounds`` rounds, or until a tolerance is met, on one thread.

    Measures are taken before the first round, after every ``evaluate_every`` rounds and at the end;
    over a network while clients train in the next round, so that a tolerance is noticed one later.

    Args:
        federation: The federation, whose processes are ended at the end.
        rounds: The number of rounds, including those done before.
        evaluate_every: Rounds between two measurements.
        clients: Whether the losses of clients are measured; otherwise only test data are.
        gradient: Whether to measure ‖G^a‖, see ``Record``; None does so if the problem is small.
        gradient_step: The step a; None chooses it from the penalty.
        gradient_tolerance: Stop when ‖G^a‖ is at most this; 0 never stops.
        objective_tolerance: Stop when φ = f + h has changed by at most this, relatively, between
            two measurements; 0 never stops.
        may_slow_down: Whether a run that diverges goes back to its last good model and continues
            with steps of half the size, instead of ending with an error.
        records: The records of earlier rounds, if a run is resumed.
        observers: Are informed of what happens, and may stop the run.

    Raises:
        DivergenceError: The loss is not finite any more.
        FedcanonError: A setting has a mistake.

    Examples:
        >>> import torch
        >>> from fedcanon import Federation, FedCanonPlus, Problem, Quadratic, fit
        >>> from fedcanon.penalties import L1
        >>> clients = [Quadratic(torch.ones(1), torch.tensor([b])) for b in (0.0, 2.0)]
        >>> problem = Problem(clients, start=torch.zeros(1))
        >>> federation = Federation(problem, FedCanonPlus(0.5, 0.1, 5), L1(0.1))
        >>> result = fit(federation, rounds=100, gradient_tolerance=1e-3)
        >>> result.stopped
        '‖G‖ ≤ 0.001'
        >>> result.history[["round", "objective"]].iloc[[0]]
           round  objective
        0      0        1.0
    """
    if rounds < 1 or evaluate_every < 1:
        raise FedcanonError("the number of rounds and evaluate.every must be at least 1.")
    penalty, spending = federation.penalty, federation.spending
    penalty.check_step(federation.algorithm.prox_step(rounds))
    engine = federation.engine
    clients = clients and engine.measures_clients
    if not clients:
        if gradient or gradient_tolerance or objective_tolerance:
            raise FedcanonError(
                "a run that is private, has secure sums or evaluate.clients = false measures "
                "nothing on the clients' data: leave out evaluate.gradient, stop.gradient and "
                "stop.objective."
            )
        gradient = may_slow_down = False
    if gradient is None:
        gradient = is_small(federation.problem)
    step = None
    if gradient or gradient_tolerance > 0:
        step = gradient_step or stationarity_step(penalty)
        _check_measure(penalty, step)
    history = list(records)
    rides = isinstance(engine, MeasuresWhileTraining) and clients

    def is_due() -> bool:
        t = federation.rounds_done
        is_recorded = bool(history) and history[-1].round == t
        return not is_recorded and (t % evaluate_every == 0 or t == rounds)

    def take_record(moment: _Moment | None = None, found: Evaluation | None = None) -> None:
        moment = moment or _Moment.now(federation)
        t = moment.t
        numbers = {k: v for observer in observers for k, v in observer.numbers().items()}
        if moment.step_scale < 1:
            numbers["step_scale"] = moment.step_scale
        if spending is not None:
            numbers["epsilon"] = spending.epsilon
        record = measure(
            engine,
            moment.server,
            t=t,
            cost=moment.cost,
            step=step,
            clients=clients,
            numbers=numbers,
            found=found,
            distances=moment.distances,
            drops=moment.drops,
        )
        if clients and not math.isfinite(record.loss):
            raise DivergenceError(
                f"the loss is {record.loss} after round {t}: the run diverged. "
                "Use smaller steps (beta, alpha), or check the data for missing values."
            )
        model = federation.algorithm.model(moment.server)
        if may_slow_down and federation.is_diverging(record.objective, model, moment.buffers):
            raise DivergenceError(
                f"the objective f + h has grown to {record.objective:.4g} by round {t}. "
                "Use smaller steps (beta, alpha)."
            )
        history.append(record)
        for observer in observers:
            observer.record(record)

    def tell_of_going_back(error: DivergenceError) -> None:
        message = (
            f"{str(error).partition('. ')[0].rstrip('.')}: going back to the best model so far, "
            f"with steps of {federation.step_scale:g} times the size."
        )
        for observer in observers:
            observer.event(message)

    def reason_to_stop() -> str | None:
        if spending is not None and spending.is_used_up and federation.rounds_done < rounds:
            return "privacy budget used up"
        if len(history) < 2:
            return None
        before, last = history[-2:]
        reached = last.gradient_norm
        if gradient_tolerance and reached is not None and reached <= gradient_tolerance:
            return f"‖G‖ ≤ {gradient_tolerance:g}"
        change = abs(last.objective - before.objective)
        known = math.isfinite(before.objective)  # φ = ∞ at a start that violates a constraint
        if objective_tolerance and known and change <= objective_tolerance * abs(before.objective):
            return f"relative change of φ ≤ {objective_tolerance:g}"
        return None

    try:
        for observer in observers:
            observer.begin(federation, rounds)
            for warning in federation.warnings(rounds):
                observer.event(warning)
        if not (history or rides):
            take_record()
        stopped = reason_to_stop()
        while stopped is None and federation.rounds_done < rounds:
            try:
                moment = None
                if rides and isinstance(engine, MeasuresWhileTraining) and is_due():
                    moment = _Moment.now(federation)
                    engine.measure_with_next_round(federation.model, gradient=step is not None)
                found = federation.step()
                if moment is not None:
                    take_record(moment, found)
                if is_due() and (not rides or federation.rounds_done == rounds):
                    take_record()
                stopped = reason_to_stop()
            except DivergenceError as error:
                if not (may_slow_down and federation.slow_down()):
                    raise
                tell_of_going_back(error)
                if federation.rounds_done == rounds:
                    take_record()
            reasons = [observer.round(federation.rounds_done) for observer in observers]
            stopped = stopped or next(filter(None, reasons), None)
        if history[-1].round < federation.rounds_done:
            take_record()
        stopped = stopped or ALL_ROUNDS
        for observer in observers:
            observer.end(stopped)
    finally:
        federation.close()
    vector, buffers = federation.model, federation.engine.model_buffers
    make_model = partial(federation.problem.clients[0].module, vector, buffers)
    return Result(vector, buffers, history, stopped, make_model)


def _check_measure(penalty: Penalty, step: float) -> None:
    try:
        penalty.check_step(step)
    except FedcanonError as error:
        raise FedcanonError(f"evaluate.step cannot be {step:g}: {error}") from None
