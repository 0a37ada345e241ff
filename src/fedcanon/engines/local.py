"""Clients run one after the other in this process."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from fedcanon.algorithms import Algorithm, State
from fedcanon.engines.randomness import Purpose, generator, module_draws
from fedcanon.engines.summation import TreeSum
from fedcanon.engines.work import Batches, ClientWork, CountedProx
from fedcanon.errors import FedcanonError
from fedcanon.objectives import Problem
from fedcanon.penalties import Penalty


@dataclass
class Traffic:
    """The messages of one round, counted where they are handed over."""

    floats_down: int = 0
    floats_up: int = 0
    bytes_down: int = 0
    bytes_up: int = 0

    def down(self, message: State) -> None:
        """Count a message from the server to one client."""
        for vector in _vectors(message):
            self.floats_down += vector.numel()
            self.bytes_down += vector.numel() * vector.element_size()

    def up(self, message: State) -> None:
        """Count a message from one client to the server."""
        for vector in _vectors(message):
            self.floats_up += vector.numel()
            self.bytes_up += vector.numel() * vector.element_size()


@dataclass(frozen=True)
class Collected:
    """One round of the clients: the weighted mean upload, their share of the weight, the cost."""

    mean: State
    share: float
    traffic: Traffic
    prox_calls: int


@dataclass(frozen=True)
class Evaluation:
    """What the clients and the test data say of a model."""

    loss: float
    gradient: Tensor | None
    test: dict[str, float]


@dataclass
class LocalEngine:
    """Runs the client side of an algorithm over the clients of a problem.

    A client's state appears when it first takes part. A client that took part in the round before
    gets the broadcast without the entries that it can ``recall``. Normalisation buffers travel
    beside the algorithm's vectors and are averaged.
    """

    problem: Problem
    algorithm: Algorithm
    penalty: Penalty
    batch_size: int | None = None
    seed: int = 0
    clients: dict[int, State] = field(default_factory=dict)
    buffers: Tensor = field(init=False)
    _last_sent: State = field(default_factory=dict)
    _last_participants: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        self.buffers = self.problem.start_buffers

    def collect(self, t: int, participants: Sequence[int], sent: State) -> Collected:
        """Run round ``t`` on the participants and average their uploads.

        A round that fails leaves everything as it was: client states move on at its end, together.
        """
        sent = {**sent, _BUFFERS: self.buffers}
        short = {name: sent[name] for name in sent if name not in self.algorithm.recalled}
        completed = (
            {**short, **self.algorithm.recall(self._last_sent, short)} if self._last_sent else sent
        )
        traffic, prox, uploads = Traffic(), CountedProx(self.penalty), TreeSum()
        states: dict[int, State] = {}
        for client in participants:
            recalls = client in self._last_participants
            traffic.down(short if recalls else sent)
            received = completed if recalls else sent
            upload, states[client] = self._run(t, client, received, prox)
            traffic.up(upload)
            weight = self.problem.weights[client]
            uploads.push(upload if weight == 1 else {k: weight * v for k, v in upload.items()})
        # fsum is exact in any order, so that the share of all clients is 1 to the last bit.
        weight_taken = math.fsum(self.problem.weights[client] for client in participants)
        mean = {name: total / weight_taken for name, total in uploads.total().items()}
        self.buffers = mean.pop(_BUFFERS)
        self.clients.update(states)
        self._last_sent, self._last_participants = sent, frozenset(participants)
        share = weight_taken / self.problem.total_weight
        return Collected(mean, share, traffic, prox.calls)

    def _run(self, t: int, client: int, received: State, prox: CountedProx) -> tuple[State, State]:
        """One client's upload and new state."""
        objective = self.problem.clients[client]
        rng = generator(self.seed, Purpose.BATCHES, t, client)
        work = ClientWork(objective, prox, Batches(objective.samples, self.batch_size, rng))
        state = self.clients.get(client) or self.algorithm.client_init(self.problem.start)
        objective.buffers.copy_(received[_BUFFERS])
        with module_draws(self.seed, t, client):
            upload, state = self.algorithm.local(state, received, work)
        if not all(bool(vector.sum().isfinite()) for vector in _vectors(upload)):
            raise FedcanonError(
                f"client {client} diverged in round {t}: its update is not finite. "
                "Use smaller steps (beta, alpha), or check its data for missing values."
            )
        return {**upload, _BUFFERS: objective.buffers.clone()}, state

    def evaluate(self, z: Tensor, *, gradient: bool) -> Evaluation:
        """f(z), its gradient if asked for, and the test measures of the model ``z``."""
        self.problem.buffers.copy_(self.buffers)
        if gradient:
            return Evaluation(*self.problem.value_and_gradient(z), self.problem.test(z))
        return Evaluation(self.problem.value(z), None, self.problem.test(z))


_BUFFERS = "buffers"


def _vectors(message: State) -> Iterator[Tensor]:
    return (entry for entry in message.values() if isinstance(entry, Tensor))
