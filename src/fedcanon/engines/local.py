"""Clients run one after the other in this process."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from torch import Tensor

from fedcanon.algorithms import Algorithm, Links, State
from fedcanon.compression import Compressor, Identity
from fedcanon.engines.messages import Traffic, decoded, own_rows, vectors
from fedcanon.engines.randomness import generator, module_draws
from fedcanon.engines.summation import Average, Mixing
from fedcanon.engines.work import ClientWork, CountedProx
from fedcanon.errors import FedcanonError
from fedcanon.objectives import Problem
from fedcanon.penalties import Penalty


@dataclass(frozen=True)
class Collected:
    """One round of the clients: the weighted mean upload, their share of the weight, the cost.

    ``states``, ``buffers`` and ``sent`` are what the engine remembers once the round counts.
    """

    mean: State
    share: float
    traffic: Traffic
    prox_calls: int
    states: dict[int, State]
    buffers: Tensor
    sent: State


@dataclass(frozen=True)
class Evaluation:
    """What the clients and the test data say of a model."""

    losses: list[float]
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
    compressor: Compressor = field(default_factory=Identity)
    clients: dict[int, State] = field(default_factory=dict)
    buffers: Tensor = field(init=False)
    _last_sent: State = field(default_factory=dict)
    _last_participants: frozenset[int] = frozenset()
    _links: Links | None = field(init=False)

    def __post_init__(self) -> None:
        self.buffers = self.problem.start_buffers
        self._links = self.algorithm.links(len(self.problem.clients))
        if self._links is not None and len(set(self.problem.weights)) > 1:
            raise FedcanonError(
                f"{type(self.algorithm).__name__} averages over neighbours and cannot weigh "
                'clients differently: use clients.weights = "uniform".'
            )

    def collect(self, t: int, participants: Sequence[int], sent: State) -> Collected:
        """Run round ``t`` on the participants and average their uploads.

        Nothing changes before ``commit``, so that a round that fails leaves everything as it was.
        """
        sent = {**sent, _BUFFERS: self.buffers}
        short = {name: sent[name] for name in sent if name not in self.algorithm.recalled}
        completed = (
            {**short, **self.algorithm.recall(self._last_sent, short)} if self._last_sent else sent
        )
        traffic, prox, links = Traffic(), CountedProx(self.penalty), self._links
        average = Average(self.problem.weights) if links is None else Mixing(links)
        states: dict[int, State] = {}
        for client in participants:
            recalls = client in self._last_participants
            copies = 1 if links is None else links.degrees[client]
            traffic.down(own_rows(short if recalls else sent, client), copies)
            received = own_rows(completed if recalls else sent, client)
            upload, states[client] = self._run(t, client, received, prox)
            traffic.up(upload, copies)
            average.push(client, decoded(upload))
        mean = average.mean()
        buffers = mean.pop(_BUFFERS)
        # fsum is exact in any order, so that the share of all clients is 1 to the last bit.
        weight_taken = math.fsum(self.problem.weights[client] for client in participants)
        share = weight_taken / self.problem.total_weight
        return Collected(mean, share, traffic, prox.calls, states, buffers, sent)

    def commit(self, collected: Collected) -> None:
        """Let a round count: clients keep their new states."""
        self.buffers = collected.buffers
        self.clients.update(collected.states)
        self._last_sent, self._last_participants = collected.sent, frozenset(collected.states)

    def _run(self, t: int, client: int, received: State, prox: CountedProx) -> tuple[State, State]:
        """One client's upload and new state."""
        objective = self.problem.clients[client]
        draws = partial(generator, self.seed, t=t, client=client)
        work = ClientWork(objective, prox, self.batch_size, self.compressor, draws)
        state = self.clients.get(client) or self.algorithm.client_init(self.problem.start)
        objective.buffers.copy_(received[_BUFFERS])
        with module_draws(self.seed, t, client):
            upload, state = self.algorithm.local(state, received, work)
        if not all(bool(vector.sum().isfinite()) for vector in vectors(decoded(upload))):
            raise FedcanonError(
                f"client {client} diverged in round {t}: its update is not finite. "
                "Use smaller steps (beta, alpha), or check its data for missing values."
            )
        return {**upload, _BUFFERS: objective.buffers.clone()}, state

    @property
    def model_buffers(self) -> Tensor:
        """The normalisation statistics of the model, averaged over nodes where each has its own."""
        return self.buffers.mean(0) if self.buffers.ndim == 2 else self.buffers

    def evaluate(self, z: Tensor, *, gradient: bool) -> Evaluation:
        """f_i(z), ∇f(z) if asked for, and the test measures of the model ``z``."""
        self.problem.buffers.copy_(self.model_buffers)
        if gradient:
            return Evaluation(*self.problem.losses_and_gradient(z), self.problem.test(z))
        return Evaluation(self.problem.losses(z), None, self.problem.test(z))

    def state(self) -> State:
        """All that the engine must remember between rounds."""
        return {
            "clients": {str(client): state for client, state in self.clients.items()},
            "buffers": self.buffers,
            "last_sent": self._last_sent,
            "last_participants": sorted(self._last_participants),
        }

    def load(self, state: State) -> None:
        """Go on from a state."""
        self.clients = {int(client): own for client, own in state["clients"].items()}
        self.buffers = state["buffers"]
        self._last_sent = state["last_sent"]
        self._last_participants = frozenset(state["last_participants"])


_BUFFERS = "buffers"
