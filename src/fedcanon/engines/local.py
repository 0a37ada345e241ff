"""Rounds of clients, run by workers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from fedcanon.algorithms import Algorithm, Links, State
from fedcanon.compression import Compressor, Identity
from fedcanon.engines.engine import Collected, Engine, Evaluation
from fedcanon.engines.messages import Traffic, copied
from fedcanon.engines.round import BUFFERS, Bench, Done, Order, Question, Seat, examine, train
from fedcanon.engines.stacked import HEIGHT
from fedcanon.engines.store import GIB, StateStore
from fedcanon.engines.summation import TreeSum, Vectors, height_of, mixed, subtrees
from fedcanon.engines.workers import InProcess, MakeWorkers, Result
from fedcanon.errors import FedcanonError
from fedcanon.objectives import Problem
from fedcanon.objectives.stacked import can_stack
from fedcanon.penalties import Penalty


class _Round(NamedTuple):
    """What is remembered of a round once it counts."""

    slots: dict[int, int]
    buffers: Tensor
    sent: State


@dataclass
class LocalEngine(Engine):
    """Runs the clients of a problem by workers.

    A client's state appears when it first takes part. A client that took part in the round before
    gets the broadcast without the entries that it can ``recall``. Normalisation buffers travel
    beside the algorithm's vectors and are averaged.
    """

    problem: Problem
    algorithm: Algorithm
    penalty: Penalty
    batch_size: int | None = None
    seed: int = 0
    compressor: Compressor = field(default_factory=Identity)
    make_workers: MakeWorkers = InProcess
    vectorised: bool = False
    state_memory: int = GIB
    buffers: Tensor = field(init=False)
    _last_sent: State = field(default_factory=dict)
    _last_participants: frozenset[int] = frozenset()
    _links: Links | None = field(init=False)

    def __post_init__(self) -> None:
        self.buffers = self.problem.start_buffers
        clients = len(self.problem.clients)
        self._links = self.algorithm.links(clients)
        if self.vectorised and (self._links is not None or not can_stack(self.problem.clients)):
            raise FedcanonError(
                "engine.vectorised is for linear models and small networks of linear layers under "
                "one server: leave it out."
            )
        if self._links is not None and len(set(self.problem.weights)) > 1:
            raise FedcanonError(
                f"{type(self.algorithm).__name__} averages over neighbours and cannot weigh "
                'clients differently: use clients.weights = "uniform".'
            )
        template = self.algorithm.client_init(self.problem.start)
        self._store = StateStore(clients, template, self.state_memory)
        bench = Bench(
            self.algorithm,
            self.penalty,
            self.batch_size,
            self.seed,
            self.compressor,
            self.problem,
            self._store,
            self.vectorised,
            weighted=self._links is None,
        )
        self._workers = self.make_workers(bench)
        self._samples = [client.samples for client in self.problem.clients]

    def available(self) -> Sequence[int]:
        return range(len(self.problem.clients))

    def collect(
        self, t: int, participants: Sequence[int], sent: State, *, complete: bool = False
    ) -> Collected:
        sent = {**sent, BUFFERS: self.buffers}
        recalled: State = {}
        if self._last_sent:
            short = {name: v for name, v in sent.items() if name not in self.algorithm.recalled}
            recalled = self.algorithm.recall(self._last_sent, short)
        slots = {client: self._store.reserve() for client in participants}
        try:
            seats = [self._seat(client, slots[client]) for client in participants]
            order = Order(t, sent, recalled)
            mean, traffic, prox_calls = self._average(order, seats)
        except BaseException:
            self._store.release(slots)
            raise
        buffers = mean.pop(BUFFERS)
        share = self._weight(participants) / self.problem.total_weight
        self._collected = _Round(slots, buffers, sent)
        return Collected(mean, share, traffic, prox_calls)

    def commit(self) -> None:
        done = self._collected
        self.buffers = done.buffers
        self._store.commit(done.slots)
        self._last_sent, self._last_participants = done.sent, frozenset(done.slots)

    def _seat(self, client: int, new: int) -> Seat:
        copies = 1 if self._links is None else self._links.degrees[client]
        recalls = client in self._last_participants
        return Seat(client, self._store.slot(client), new, recalls, copies)

    def _weight(self, clients: Iterable[int]) -> float:
        # fsum is exact in any order, so that the share of all clients is 1 to the last bit.
        return math.fsum(self.problem.weights[client] for client in clients)

    def _average(self, order: Order, seats: Sequence[Seat]) -> tuple[Vectors, Traffic, int]:
        """The mean upload of a round, or that of every node, and what it cost."""
        batch = math.inf if self.batch_size is None else self.batch_size
        costs = [min(batch, self._samples[seat.client]) for seat in seats]
        parts = self._parts(costs, smallest=HEIGHT if self.vectorised else 0)
        tasks = [[seats[k] for k in part] for part in parts]
        if self._links is not None:
            tasks = [[seat] for seat in seats]
        total, uploads, traffic, prox_calls = TreeSum(), list[Vectors](), Traffic(), 0
        results: Iterator[Done] = _in_order(self._workers.map(train, order, tasks))
        for task, done in zip(tasks, results, strict=True):
            traffic, prox_calls = traffic + done.traffic, prox_calls + done.prox_calls
            if self._links is None:
                total.push(done.total, height_of(task), lent=True)
            else:
                uploads.append(copied(done.total))
        if self._links is not None:
            return mixed(self._links, uploads), traffic, prox_calls
        taken = self._weight(seat.client for seat in seats)
        mean = {name: vector / taken for name, vector in total.total().items()}
        return mean, traffic, prox_calls

    def _parts(self, costs: Sequence[float], smallest: int = 0) -> list[range]:
        """Positions cut into tasks."""
        return subtrees(costs, self._workers.count, smallest)

    @property
    def model_buffers(self) -> Tensor:
        return self.buffers.mean(0) if self.buffers.ndim == 2 else self.buffers

    def evaluate(self, z: Tensor, *, gradient: bool) -> Evaluation:
        question = Question(z, self.model_buffers, gradient)
        parts = self._parts(self._samples)
        results = self._workers.map(examine, question, [None, *parts])
        found = list(map(copied, _in_order(results)))
        losses = [loss for part in found for loss in part.losses]
        total = TreeSum()
        for part, own in zip(parts, found[1:], strict=True):
            total.push(own.gradient, height_of(part))
        loss = self.problem.mean(losses)
        return Evaluation(loss, losses, total.total().get("gradient"), found[0].test)

    def close(self) -> None:
        self._workers.close()

    @property
    def clients(self) -> dict[int, State]:
        """A copy of the state of every client that has taken part."""
        return {client: copied(state) for client, state in self._states()}

    @clients.setter
    def clients(self, states: Mapping[int, State]) -> None:
        slots = {client: self._store.reserve() for client in states}
        for client, state in states.items():
            self._store.write(slots[client], state)
        self._store.replace(slots)

    def _states(self) -> Iterator[tuple[int, State]]:
        for client in self._store:
            slot = self._store.slot(client)
            assert slot is not None
            yield client, self._store.read(slot)

    def state(self) -> State:
        return {
            "clients": {str(client): state for client, state in self._states()},
            "buffers": self.buffers,
            "last_sent": self._last_sent,
            "last_participants": sorted(self._last_participants),
        }

    def load(self, state: State) -> None:
        if "books" in state:
            raise FedcanonError("this run was on Flower and can only go on there: --engine flower.")
        self.clients = {int(client): own for client, own in state["clients"].items()}
        self.buffers = state["buffers"]
        self._last_sent = state["last_sent"]
        self._last_participants = frozenset(state["last_participants"])


def _in_order(results: Iterator[tuple[int, Result]]) -> Iterator[Result]:
    """Results by the number of their task, each as soon as those before it are there."""
    waiting: dict[int, Result] = {}
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
