"""What processes are asked to do: train some clients of a round, or measure some clients' losses.

Positions among the participants are the leaves of a binary tree. A task is a complete subtree of
it, so its uploads can be added up where they are made and the sum has the same bits as elsewhere.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from torch import Tensor

from fedcanon.algorithms import Algorithm, State
from fedcanon.compression import Compressor
from fedcanon.engines.messages import Traffic, decoded, own_rows, vectors
from fedcanon.engines.randomness import generator, module_draws
from fedcanon.engines.stacked import HEIGHT, StackedWork, stack, unstack
from fedcanon.engines.store import StateStore
from fedcanon.engines.summation import TreeSum, Vectors
from fedcanon.engines.work import ClientWork, CountedProx
from fedcanon.errors import FedcanonError
from fedcanon.objectives import ModuleClients, Problem
from fedcanon.objectives.stacked import StackedModule
from fedcanon.penalties import Penalty

BUFFERS = "buffers"
"""The name under which normalisation statistics travel."""


@dataclass
class Bench:
    """All that a process needs to work for clients, and that stays the same in all rounds."""

    problem: Problem
    algorithm: Algorithm
    penalty: Penalty
    batch_size: int | None
    seed: int
    compressor: Compressor
    store: StateStore
    vectorised: bool = False
    """Whether clients take their local steps together."""
    weighted: bool = True
    """Whether uploads are multiplied by the clients' weights before they are added up."""


@dataclass(frozen=True)
class Seat:
    """One participant: where its state is, where the new one goes, and what it can recall."""

    client: int
    old: int | None
    new: int
    recalls: bool
    copies: int = 1
    """How many send it the broadcast and get its upload: one server, or its neighbours."""


@dataclass(frozen=True)
class Order:
    """What all participants of round ``t`` are sent; ``recalled`` they may have computed before."""

    t: int
    sent: State
    recalled: State

    @property
    def short(self) -> State:
        """The message to a client that computes the rest itself."""
        return {name: entry for name, entry in self.sent.items() if name not in self.recalled}


@dataclass
class Done:
    """The sum of some uploads, and what they cost."""

    total: Vectors = field(default_factory=dict)
    traffic: Traffic = field(default_factory=Traffic)
    prox_calls: int = 0


def train(bench: Bench, order: Order, seats: Sequence[Seat]) -> Done:
    """Run the clients of a complete subtree."""
    done, prox, total = Done(), CountedProx(bench.penalty), TreeSum()
    size = 1 << HEIGHT if bench.vectorised else 1
    for first in range(0, len(seats), size):
        group = seats[first : first + size]
        messages = [_message(order, seat) for seat in group]
        run = _run_together if bench.vectorised else _run
        for seat, message, upload in zip(
            group, messages, run(bench, order, group, messages, prox), strict=True
        ):
            done.traffic.down(message, seat.copies)
            done.traffic.up(upload, seat.copies)
            weight = bench.problem.weights[seat.client] if bench.weighted else 1.0
            total.push(weighted(decoded(upload), weight))
    done.total, done.prox_calls = total.total(), prox.calls
    return done


def _message(order: Order, seat: Seat) -> State:
    return own_rows(order.short if seat.recalls else order.sent, seat.client)


def _received(order: Order, seat: Seat, message: State) -> State:
    """The message, completed by what the client computes itself."""
    return {**message, **order.recalled} if seat.recalls else message


def _work(bench: Bench, t: int, client: int, prox: CountedProx) -> ClientWork:
    draws = partial(generator, bench.seed, t=t, client=client)
    objective = bench.problem.clients[client]
    return ClientWork(objective, prox, bench.batch_size, bench.compressor, draws)


def _state(bench: Bench, seat: Seat) -> State:
    if seat.old is None:
        return bench.algorithm.client_init(bench.problem.start)
    return bench.store.read(seat.old)


def _run(
    bench: Bench,
    order: Order,
    seats: Sequence[Seat],
    messages: Sequence[State],
    prox: CountedProx,
) -> Iterator[State]:
    """The clients' uploads, one client after the other; new states go to the store."""
    t = order.t
    for seat, message in zip(seats, messages, strict=True):
        client, buffers = seat.client, bench.problem.buffers
        with _named(f"client {client} failed in round {t}"):
            received = _received(order, seat, message)
            buffers.copy_(received[BUFFERS])
            with module_draws(bench.seed, t, client):
                upload, state = bench.algorithm.local(
                    _state(bench, seat), received, _work(bench, t, client, prox)
                )
            refuse_divergence(decoded(upload), t, client)
            bench.store.write(seat.new, state)
        yield {**upload, BUFFERS: buffers.clone()}


def _run_together(
    bench: Bench,
    order: Order,
    seats: Sequence[Seat],
    messages: Sequence[State],
    prox: CountedProx,
) -> Iterator[State]:
    """The same with all clients at once; see ``StackedWork``."""
    t, clients = order.t, bench.problem.clients
    assert isinstance(clients, ModuleClients)
    members = [seat.client for seat in seats]
    with _named(f"clients {members[0]} to {members[-1]} failed in round {t}"):
        dtype = bench.problem.start.dtype
        received = stack(
            [_received(order, *own) for own in zip(seats, messages, strict=True)], dtype
        )
        states = stack([_state(bench, seat) for seat in seats], dtype)
        work = [_work(bench, t, client, prox) for client in members]
        together = StackedWork(StackedModule(clients, members), work)
        uploads, states = bench.algorithm.local(states, received, together)
    count = len(seats)
    for seat, upload, state in zip(
        seats, unstack(uploads, count), unstack(states, count), strict=True
    ):
        refuse_divergence(decoded(upload), t, seat.client)
        bench.store.write(seat.new, state)
        yield {**upload, BUFFERS: bench.problem.buffers}


def refuse_divergence(upload: State, t: int, client: int) -> None:
    """Refuse an update with an entry that is not finite."""
    if not all(bool(vector.sum().isfinite()) for vector in vectors(upload)):
        raise FedcanonError(
            f"client {client} diverged in round {t}: its update is not finite. "
            "Use smaller steps (beta, alpha), or check its data for missing values."
        )


def weighted(upload: Vectors, weight: float) -> Vectors:
    """The upload times the client's weight."""
    return upload if weight == 1 else {name: weight * vector for name, vector in upload.items()}


@dataclass(frozen=True)
class Question:
    """What is asked of the model ``z``: losses, and the gradient too if ``gradient`` is set."""

    z: Tensor
    buffers: Tensor
    gradient: bool


@dataclass
class Findings:
    """Losses of some clients and the sum of their weighted gradients, or measures on test data."""

    losses: list[float] = field(default_factory=list)
    gradient: Vectors = field(default_factory=dict)
    test: dict[str, float] = field(default_factory=dict)


def examine(bench: Bench, question: Question, clients: range | None) -> Findings:
    """Measure the losses of a complete subtree of clients; of None, the test data."""
    problem, z = bench.problem, question.z
    problem.buffers.copy_(question.buffers)
    if clients is None:
        with _named("the test of the model failed"):
            return Findings(test=problem.test(z))
    found, total = Findings(), TreeSum()
    for client in clients:
        with _named(f"the loss of client {client} could not be computed"):
            objective = problem.clients[client]
            if not question.gradient:
                found.losses.append(objective.value(z))
                continue
            loss, gradient = objective.value_and_gradient(z)
            found.losses.append(loss)
            total.push({"gradient": problem.weights[client] / problem.total_weight * gradient})
    found.gradient = total.total() if question.gradient else {}
    return found


@contextmanager
def _named(what: str) -> Iterator[None]:
    """Say of an error whose it is."""
    try:
        yield
    except FedcanonError:
        raise
    except Exception as error:
        kind = type(error).__name__
        reason = f"{kind}: {error}"
        if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
            reason = (
                "there is not enough memory. Use fewer engine.workers, a smaller batch_size or a "
                "smaller model."
            )
        named = FedcanonError(f"{what}: {reason}")
        named.add_note(traceback.format_exc())  # which a process would else keep for itself
        raise named from error
