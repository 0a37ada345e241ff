"""The engine that runs all clients on this machine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fedcanon.algorithms import Mixed, Recalling, State
from fedcanon.engines.aggregation import Accumulator
from fedcanon.engines.base import Collected, Engine, Evaluation, Rules
from fedcanon.engines.client import BUFFERS
from fedcanon.engines.combining import Combined, Combining
from fedcanon.engines.processes import Processes
from fedcanon.engines.stacked_work import HEIGHT
from fedcanon.engines.store import RoundStates, StateStore
from fedcanon.engines.summation import Tree, height_of, subtrees
from fedcanon.engines.tasks import (
    Broadcast,
    EvaluationRequest,
    EvaluationResult,
    Participation,
    TrainingResult,
    WorkerSetup,
    evaluate,
    group_height,
    measures_of,
    parts_of,
    train,
)
from fedcanon.engines.traffic import Traffic, copied
from fedcanon.engines.workers import Answer, InProcess, MakeWorkers
from fedcanon.errors import FedcanonError
from fedcanon.objectives import Problem
from fedcanon.objectives.stacked import can_stack
from fedcanon.units import GIB


@dataclass(frozen=True)
class Local:
    """Makes engines that run all clients on this machine.

    Args:
        workers: How many processes to start; None runs clients one after the other in this process.
        vectorised: Whether clients of small models take their local steps together.
        state_memory: Client states are kept on disk if they need more than so many bytes.
        devices: Devices that the processes use in turn.
        start_method: How processes are started; None chooses the one that is safe on this system.
    """

    workers: int | None = None
    vectorised: bool = False
    state_memory: int = GIB
    devices: tuple[torch.device, ...] = ()
    start_method: Literal["fork", "spawn"] | None = None

    def __call__(self, problem: Problem, rules: Rules) -> LocalEngine:
        """Make the engine for a problem."""
        make: MakeWorkers = InProcess
        if self.workers is not None:
            make = partial(
                Processes, count=self.workers, method=self.start_method, devices=self.devices
            )
        return LocalEngine(problem, rules, make, self.vectorised, self.state_memory)


class _Round(NamedTuple):
    """A round before its commit: the slots of new states, the statistics and the broadcast."""

    slots: dict[int, int]
    buffers: Tensor
    sent: State


@dataclass
class LocalEngine(Engine):
    """Runs the clients of a problem on workers.

    A client gets its state when it first takes part. A client that took part in the round before
    receives the broadcast without the entries that it can ``recall``. Normalisation statistics are
    sent and averaged together with the vectors of the algorithm.
    """

    problem: Problem
    rules: Rules
    make_workers: MakeWorkers
    vectorised: bool = False
    state_memory: int = GIB
    buffers: Tensor = field(init=False)
    _last_sent: State = field(init=False, default_factory=dict)
    _last_participants: frozenset[int] = field(init=False, default=frozenset())

    def __post_init__(self) -> None:
        problem, algorithm = self.problem, self.rules.algorithm
        self.buffers = problem.start_buffers
        if self.vectorised and (isinstance(algorithm, Mixed) or not can_stack(problem.clients)):
            raise FedcanonError(
                "engine.vectorised is for linear models and small networks of linear layers under "
                "one server: leave it out."
            )
        if self.vectorised and self.rules.records is not None:
            raise FedcanonError(
                "private records are clipped client by client, so that clients cannot take their "
                "local steps together: leave engine.vectorised out."
            )
        self._combining = Combining(problem, self.rules)
        template = algorithm.client_init(problem.start)
        self._store = StateStore(len(problem.clients), template, self.state_memory)
        gathering = self._combining.gathering
        self._workers = self.make_workers(
            WorkerSetup(problem, self.rules, gathering, self._store, self.vectorised)
        )

    def available(self) -> Sequence[int]:
        return range(len(self.problem.clients))

    def collect(
        self, t: int, participants: Sequence[int], sent: State, *, complete: bool = False
    ) -> Collected:
        sent = {**sent, BUFFERS: self.buffers}
        recalled: State = {}
        algorithm = self.rules.algorithm
        if self._last_sent and isinstance(algorithm, Recalling):
            short = {name: v for name, v in sent.items() if name not in algorithm.recalled}
            recalled = algorithm.recall(self._last_sent, short)
        slots = {client: self._store.reserve() for client in participants}
        try:
            clients = [
                Participation(c, self._store.slot(c), slot, c in self._last_participants)
                for c, slot in slots.items()
            ]
            combined, traffic, prox_calls = self._aggregate(Broadcast(t, sent, recalled), clients)
        except BaseException:
            self._store.release(slots)
            raise
        mean, level, verdict, waits = combined
        buffers = mean.pop(BUFFERS)
        weights = [self.problem.weights[client] for client in slots]
        share = self._combining.rule.share(weights, self.problem.total_weight)
        self._collected = _Round(slots, buffers, sent)
        return Collected(mean, share, traffic, prox_calls, None, level, verdict, waits)

    def commit(self) -> None:
        done = self._collected
        self.buffers = done.buffers
        self._store.commit(done.slots)
        self._combining.commit()
        self._last_sent, self._last_participants = done.sent, frozenset(done.slots)

    def start_over(self, z: Tensor) -> None:
        state = self.rules.algorithm.client_init(z)
        self.clients = dict.fromkeys(self._store, state)
        self._combining.start_over()
        self._last_sent, self._last_participants = {}, frozenset()

    def _aggregate(
        self, broadcast: Broadcast, clients: Sequence[Participation]
    ) -> tuple[Combined, Traffic, int]:
        """Run a round on the workers; return the combined uploads, the traffic and prox calls."""
        batch = math.inf if self.rules.batch_size is None else self.rules.batch_size
        costs = [min(batch, self.problem.samples[one.client]) for one in clients]
        positions = self._tasks(costs, smallest=HEIGHT if self.vectorised else 0)
        tasks = [[clients[k] for k in some] for some in positions]
        uploads, traffic, prox_calls = Accumulator(self._combining.gathering), Traffic(), 0
        results: Iterator[TrainingResult] = _in_order(self._workers.map(train, broadcast, tasks))
        for task, done in zip(tasks, results, strict=True):
            traffic, prox_calls = traffic + done.traffic, prox_calls + done.prox_calls
            uploads.extend(done.parts, height_of(task), temporary=True)
        weights = [self.problem.weights[one.client] for one in clients]
        first = self.rules.algorithm.client_init(self.problem.start)
        combined = self._combining.combine(
            broadcast.t,
            [one.client for one in clients],
            uploads.parts(),
            weights,
            RoundStates(self._store, {one.client: one.new for one in clients}, first),
            len(self.problem.clients),
        )
        return combined, traffic, prox_calls

    def _tasks(self, costs: Sequence[float], smallest: int = 0) -> list[range]:
        """Cut the positions of clients with these costs into tasks."""
        return subtrees(costs, self._workers.count, smallest)

    def evaluate(self, z: Tensor, *, gradient: bool) -> Evaluation:
        request = EvaluationRequest(z, self.model_buffers, gradient)
        tasks = self._tasks(self.problem.samples, smallest=group_height(self.problem))
        test, found = self._measured(request, tasks)
        losses = [loss for part in found for loss in part.losses]
        total = Tree()
        for task, own in zip(tasks, found, strict=True):
            total.push(own.gradient, height_of(task))
        loss = self.problem.mean(losses)
        return Evaluation(loss, losses, total.total().get("gradient"), test)

    def test(self, z: Tensor) -> dict[str, float]:
        return self._measured(EvaluationRequest(z, self.model_buffers, gradient=False), [])[0]

    def _measured(
        self, request: EvaluationRequest, tasks: Sequence[range]
    ) -> tuple[dict[str, float], list[EvaluationResult]]:
        """Return the measures on test data, and what was found of the clients of each task."""
        parts = parts_of(self.problem.test, self._workers.count)
        results = self._workers.map(evaluate, request, [*parts, *tasks])
        found: list[EvaluationResult] = list(map(copied, _in_order(results)))
        return measures_of(self.problem.test, found[: len(parts)]), found[len(parts) :]

    def shortage(self, states: int) -> str | None:
        return self._store.shortage(states)

    def close(self) -> None:
        self._workers.close()

    @property
    def clients(self) -> dict[int, State]:
        """Copies of the states of all clients that have taken part, by client."""
        return {c: copied(self._store.read(self._store.slots[c])) for c in self._store}

    @clients.setter
    def clients(self, states: Mapping[int, State]) -> None:
        self._store.replace_all(states)

    def state(self) -> State:
        return {
            "clients": self._store.parts(),
            "buffers": self.buffers,
            "combining": self._combining.state(),
            "last_sent": self._last_sent,
            "last_participants": sorted(self._last_participants),
        }

    def load(self, state: State) -> None:
        if "membership" in state:
            raise FedcanonError("this run was on Flower and can only go on there: --engine flower.")
        entries = state["buffers"].shape[-1]  # of the model, or of every node's own
        if entries != self.buffers.shape[-1]:
            raise ValueError("it has another model")
        self._store.load(state["clients"])
        if not all(client in self.available() for client in self._store):
            raise ValueError("it has other clients")
        self.buffers = state["buffers"]
        self._combining.load(state["combining"])
        self._last_sent = state["last_sent"]
        self._last_participants = frozenset(state["last_participants"])


def _in_order(results: Iterator[tuple[int, Answer]]) -> Iterator[Answer]:
    """Yield results in the order of their tasks, each as soon as all earlier ones have come."""
    waiting: dict[int, Answer] = {}
    expected = 0
    for number, result in results:
        if number != expected:
            waiting[number] = copied(result)
            continue
        yield result
        expected += 1
        while expected in waiting:
            yield waiting.pop(expected)
            expected += 1
