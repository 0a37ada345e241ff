"""Clients run one after the other in this process."""

from __future__ import annotations

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
        self.buffers = self.problem.buffers.clone()

    def collect(self, t: int, participants: Sequence[int], sent: State) -> Collected:
        """Run round ``t`` on the participants and average their uploads."""
        sent = {**sent, _BUFFERS: self.buffers}
        short = {name: sent[name] for name in sent if name not in self.algorithm.recalled}
        traffic, prox, uploads, weight_taken = Traffic(), CountedProx(self.penalty), TreeSum(), 0.0
        completed = (
            {**short, **self.algorithm.recall(self._last_sent, short)} if self._last_sent else sent
        )
        for client in participants:
            recalls = client in self._last_participants
            traffic.down(short if recalls else sent)
            upload = self._run(t, client, completed if recalls else sent, prox)
            traffic.up(upload)
            weight = self.problem.weights[client]
            weight_taken += weight
            uploads.push(upload if weight == 1 else {k: weight * v for k, v in upload.items()})
        mean = {name: total / weight_taken for name, total in uploads.total().items()}
        self.buffers = mean.pop(_BUFFERS)
        self._last_sent, self._last_participants = sent, frozenset(participants)
        share = weight_taken / sum(self.problem.weights)
        return Collected(mean, share, traffic, prox.calls)

    def _run(self, t: int, client: int, received: State, prox: CountedProx) -> State:
        """One client's local work; its state moves on, its upload is returned."""
        objective = self.problem.clients[client]
        rng = generator(self.seed, Purpose.BATCHES, t, client)
        work = ClientWork(objective, prox, Batches(objective.samples, self.batch_size, rng))
        objective.buffers.copy_(received[_BUFFERS])
        if client not in self.clients:
            self.clients[client] = self.algorithm.client_init(self.problem.start)
        with module_draws(self.seed, t, client):
            upload, state = self.algorithm.local(self.clients[client], received, work)
        if not all(bool(vector.sum().isfinite()) for vector in upload.values()):
            raise FedcanonError(
                f"client {client} diverged in round {t}: its update is not finite. "
                "Use smaller steps (beta, alpha), or check its data for missing values."
            )
        self.clients[client] = state
        return {**upload, _BUFFERS: objective.buffers.clone()}


_BUFFERS = "buffers"


def _vectors(message: State) -> Iterator[Tensor]:
    return (entry for entry in message.values() if isinstance(entry, Tensor))
