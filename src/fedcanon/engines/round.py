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
from typing import NamedTuple

import torch
from torch import Tensor

from fedcanon.algorithms import Algorithm, State
from fedcanon.compression import Compressor
from fedcanon.engines.messages import Traffic, decoded, own_rows, vectors
from fedcanon.engines.randomness import generator, module_draws
from fedcanon.engines.stacked import HEIGHT, StackedWork, as_rows, stack, unstack
from fedcanon.engines.store import States
from fedcanon.engines.summation import TreeSum, Vectors, height_of, sum_of_rows
from fedcanon.engines.work import ClientWork, CountedProx
from fedcanon.errors import FedcanonError
from fedcanon.objectives import ModuleClients, Objective, Problem
from fedcanon.objectives.stacked import StackedModule
from fedcanon.penalties import Penalty

BUFFERS = "buffers"
"""The name under which normalisation statistics travel."""


@dataclass(frozen=True)
class Rules:
    """What every client does, in all rounds."""

    algorithm: Algorithm
    penalty: Penalty
    batch_size: int | None
    seed: int
    compressor: Compressor


@dataclass(frozen=True)
class Bench(Rules):
    """All that a process needs to work for clients, and that stays the same in all rounds."""

    problem: Problem
    store: States
    vectorised: bool = False
    """Whether clients take their local steps together."""
    weighted: bool = True
    """Whether uploads are multiplied by the clients' weights before they are added up."""


class Seat(NamedTuple):
    """One participant: where its state is, where the new one goes, and what it can recall.

    ``copies`` counts those that send it the broadcast and get its upload: a server, or neighbours.
    """

    client: int
    old: int | None
    new: int
    recalls: bool
    copies: int = 1


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

    total: Vectors
    traffic: Traffic
    prox_calls: int


def train(bench: Bench, order: Order, seats: Sequence[Seat]) -> Done:
    """Run the clients of a complete subtree."""
    traffic, prox, total = Traffic(), CountedProx(bench.penalty), TreeSum()
    if bench.vectorised:
        for first in range(0, len(seats), 1 << HEIGHT):
            group = seats[first : first + (1 << HEIGHT)]
            total.push(_train_together(bench, order, group, prox, traffic), height_of(group))
    else:
        for seat in seats:
            total.push(_train_one(bench, order, seat, prox, traffic))
    return Done(total.total(), traffic, prox.calls)


def _train_one(
    bench: Bench, order: Order, seat: Seat, prox: CountedProx, traffic: Traffic
) -> Vectors:
    """One client's weighted upload; its new state goes to the store."""
    t, client, device = order.t, seat.client, bench.problem.start.device
    message = own_rows(order.short if seat.recalls else order.sent, client)
    traffic.down(message, seat.copies)
    objective, received = bench.problem.clients[client], _received(order, seat, message, device)
    with at_work(bench, objective, t, client, received, prox) as work:
        upload, state = bench.algorithm.local(_state(bench, seat), received, work)
        refuse_divergence(upload, t, client)
        bench.store.write(seat.new, state)
    upload = {**upload, BUFFERS: objective.buffers.clone()}
    traffic.up(upload, seat.copies)
    weight = bench.problem.weights[client] if bench.weighted else 1.0
    uploaded = decoded(upload)
    return uploaded if weight == 1 else {name: weight * v for name, v in uploaded.items()}


@contextmanager
def at_work(
    rules: Rules, objective: Objective, t: int, client: int, received: State, prox: CountedProx
) -> Iterator[ClientWork]:
    """What client ``client`` can do in round ``t``, begun with the statistics it received."""
    with _named(f"client {client} failed in round {t}"):
        objective.buffers.copy_(received[BUFFERS])
        with module_draws(rules.seed, t, client):
            yield _work(rules, objective, t, client, prox)


def _train_together(
    bench: Bench, order: Order, seats: Sequence[Seat], prox: CountedProx, traffic: Traffic
) -> Vectors:
    """The sum of the weighted uploads of several clients at once; see ``StackedWork``."""
    t, problem, members = order.t, bench.problem, [seat.client for seat in seats]
    assert isinstance(problem.clients, ModuleClients)
    dtype, device = problem.start.dtype, problem.start.device
    with _named(f"clients {members[0]} to {members[-1]} failed in round {t}"):
        messages = {True: order.short, False: order.sent}
        for seat in seats:
            traffic.down(messages[seat.recalls])
        own = {
            seat.recalls: _received(order, seat, messages[seat.recalls], device) for seat in seats
        }
        received = stack([own[seat.recalls] for seat in seats], dtype)
        states = stack([_state(bench, seat) for seat in seats], dtype)
        work = [_work(bench, problem.clients[client], t, client, prox) for client in members]
        together = StackedWork(StackedModule(problem.clients, members), work)
        uploads, states = bench.algorithm.local(states, received, together)
        for seat, state in zip(seats, unstack(states, len(seats)), strict=True):
            bench.store.write(seat.new, state)
    for upload in unstack(uploads, len(seats)):
        traffic.up(upload)
    rows = {name: as_rows(entry, len(seats)) for name, entry in uploads.items()}
    if not all(bool(matrix.sum().isfinite()) for matrix in rows.values()):
        for k, client in enumerate(members):
            refuse_divergence({name: matrix[k] for name, matrix in rows.items()}, t, client)
    weights = torch.tensor([problem.weights[c] for c in members], dtype=dtype, device=device)
    total = {name: sum_of_rows(weights[:, None] * matrix) for name, matrix in rows.items()}
    return {**total, BUFFERS: problem.start_buffers}


def _received(order: Order, seat: Seat, message: State, device: torch.device) -> State:
    """The message, completed by what the client computes itself."""
    received = {**message, **order.recalled} if seat.recalls else message
    return on_device(received, device)


def _work(rules: Rules, objective: Objective, t: int, client: int, prox: CountedProx) -> ClientWork:
    draws = partial(generator, rules.seed, t=t, client=client)
    return ClientWork(objective, prox, rules.batch_size, rules.compressor, draws)


def _state(bench: Bench, seat: Seat) -> State:
    if seat.old is None:
        return bench.algorithm.client_init(bench.problem.start)
    return on_device(bench.store.read(seat.old), bench.problem.start.device)


def on_device(state: State, device: torch.device) -> State:
    """The state with its vectors on a device; the same ones where they are there already."""
    return {k: v.to(device) if isinstance(v, Tensor) else v for k, v in state.items()}


def refuse_divergence(upload: State, t: int, client: int) -> None:
    """Refuse an update with an entry that is not finite."""
    if not all(bool(vector.sum().isfinite()) for vector in vectors(decoded(upload))):
        raise FedcanonError(
            f"client {client} diverged in round {t}: its update is not finite. "
            "Use smaller steps (beta, alpha), or check its data for missing values."
        )


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
    problem, z = bench.problem, question.z.to(bench.problem.start.device)
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
