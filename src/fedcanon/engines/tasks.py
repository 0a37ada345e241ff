"""The tasks of workers: train some clients of a round, measure their losses, or test a model.

The participants are the leaves of a binary tree. A task is a complete subtree of it, so that a
worker can merge the uploads of its task and the result has the same bits for any number of workers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcanon.algorithms import State
from fedcanon.compression import decoded
from fedcanon.engines.aggregation import Accumulator, Aggregation
from fedcanon.engines.base import Rules
from fedcanon.engines.client import (
    client_work,
    encode_upload,
    explain_errors,
    require_finite,
)
from fedcanon.engines.stacked_work import (
    HEIGHT,
    StackedWork,
    as_rows,
    stack,
    unstack,
    with_numbers,
)
from fedcanon.engines.store import States
from fedcanon.engines.summation import Tree, Vectors, height_of
from fedcanon.engines.traffic import Traffic, own_rows
from fedcanon.engines.work import ClientWork, CountedProx
from fedcanon.objectives import ModuleClients, Problem
from fedcanon.objectives.losses import is_plain_cross_entropy
from fedcanon.objectives.module import ModuleTest
from fedcanon.objectives.problem import Test
from fedcanon.objectives.stacked import StackedModule


@dataclass(frozen=True)
class WorkerSetup:
    """What a worker needs in all rounds; ``vectorised`` clients take their local steps together."""

    problem: Problem
    rules: Rules
    aggregation: Aggregation
    store: States
    vectorised: bool = False


class Participation(NamedTuple):
    """One client in a round: the slots of its old and its new state in the store.

    ``old`` is None if the client has no state yet. A client that ``recalls`` took part in the round
    before and computes a part of the broadcast itself; see ``Recalling``.
    """

    client: int
    old: int | None
    new: int
    recalls: bool


@dataclass(frozen=True)
class Broadcast:
    """The message to all participants of round ``t``.

    ``recalled`` are the entries that participants of the round before compute themselves.
    """

    t: int
    sent: State
    recalled: State

    @property
    def short(self) -> State:
        """The message without the entries that some clients compute themselves."""
        return {name: entry for name, entry in self.sent.items() if name not in self.recalled}


@dataclass
class TrainingResult:
    """The uploads of some clients, merged if the aggregation rule allows it, and their cost."""

    parts: list[Vectors]
    traffic: Traffic
    prox_calls: int


def train(
    setup: WorkerSetup, broadcast: Broadcast, clients: Sequence[Participation]
) -> TrainingResult:
    """Run a round on the clients of one task, which are a complete subtree of the participants."""
    traffic, prox = Traffic(), CountedProx(setup.rules.penalty)
    uploads = Accumulator(setup.aggregation)
    if setup.vectorised:
        for first in range(0, len(clients), 1 << HEIGHT):
            group = clients[first : first + (1 << HEIGHT)]
            rows = _train_together(setup, broadcast, group, prox, traffic)
            uploads.push_rows(rows, [setup.problem.weights[one.client] for one in group])
    else:
        for one in clients:
            upload = _train_one(setup, broadcast, one, prox, traffic)
            uploads.push(upload, setup.problem.weights[one.client])
    return TrainingResult(uploads.parts(), traffic, prox.calls)


def _train_one(
    setup: WorkerSetup, broadcast: Broadcast, one: Participation, prox: CountedProx, cost: Traffic
) -> Vectors:
    """Return one client's upload and write its new state to the store."""
    t, client, problem, rules = broadcast.t, one.client, setup.problem, setup.rules
    copies = setup.aggregation.copies(client)
    message = own_rows(broadcast.short if one.recalls else broadcast.sent, client)
    cost.down(message, copies)
    objective = problem.clients[client]
    received = _received(broadcast, one, message, problem.start.device)
    with client_work(rules, objective, t, client, received, prox) as work:
        upload, state = rules.algorithm.local(_state(setup, one), received, work)
        require_finite(upload, t, client)
        setup.store.write(one.new, state)
        upload = encode_upload(rules, upload, objective.buffers.clone(), work)
    cost.up(upload, copies)
    return decoded(upload)


def _train_together(
    setup: WorkerSetup,
    broadcast: Broadcast,
    group: Sequence[Participation],
    prox: CountedProx,
    cost: Traffic,
) -> Vectors:
    """Return the uploads of clients that train together, as rows of matrices; see ``StackedWork``.

    The new states are written to the store.
    """
    t, problem, rules = broadcast.t, setup.problem, setup.rules
    members = [one.client for one in group]
    assert isinstance(problem.clients, ModuleClients)
    dtype, device = problem.start.dtype, problem.start.device
    with explain_errors(f"clients {members[0]} to {members[-1]} failed in round {t}"):
        messages = {True: broadcast.short, False: broadcast.sent}
        for one in group:
            cost.down(messages[one.recalls])
        own = {
            one.recalls: _received(broadcast, one, messages[one.recalls], device) for one in group
        }
        received = stack([own[one.recalls] for one in group], dtype)
        states = stack([_state(setup, one) for one in group], dtype)
        work = [ClientWork(rules, problem.clients[c], prox, t, c) for c in members]
        together = StackedWork(StackedModule(problem.clients, members), work)
        uploads, states = rules.algorithm.local(states, received, together)
        # Models that can be stacked have no normalisation statistics.
        uploads = encode_upload(rules, uploads, problem.start_buffers, together)
        for one, state in zip(group, unstack(states, len(group)), strict=True):
            setup.store.write(one.new, with_numbers(state))
    for upload in unstack(uploads, len(group)):
        cost.up(upload)
    rows = {name: as_rows(entry, len(group)) for name, entry in uploads.items()}
    if not all(math.isfinite(matrix.sum()) for matrix in rows.values()):
        for k, client in enumerate(members):
            require_finite({name: matrix[k] for name, matrix in rows.items()}, t, client)
    return rows


def _received(
    broadcast: Broadcast, one: Participation, message: State, device: torch.device
) -> State:
    """Return the message together with the entries that the client computes itself."""
    received = {**message, **broadcast.recalled} if one.recalls else message
    return on_device(received, device)


def _state(setup: WorkerSetup, one: Participation) -> State:
    start = setup.problem.start
    if one.old is None:
        return setup.rules.algorithm.client_init(start)
    return on_device(setup.store.read(one.old), start.device)


def on_device(state: State, device: torch.device) -> State:
    """Return the state with its vectors on a device; vectors that are there are not copied."""
    return {k: v.to(device) if isinstance(v, Tensor) else v for k, v in state.items()}


@dataclass(frozen=True)
class EvaluationRequest:
    """A model ``z`` to be measured, with its statistics and whether ∇f(z) is needed."""

    z: Tensor
    buffers: Tensor
    gradient: bool


@dataclass
class EvaluationResult:
    """The losses of some clients and Σ p_i ∇f_i(z) over them, or what a part of a test gives."""

    losses: list[float] = field(default_factory=list)
    gradient: Vectors = field(default_factory=dict)
    test: dict[str, float] = field(default_factory=dict)
    outputs: NDArray[Any] | None = None
    """Of some test samples; no tensor, because the memory for tensors is made for vectors of the
    model, and these may be larger."""


_SAMPLES_TOGETHER = 256
"""Clients with fewer samples are measured in groups of about so many."""


def group_height(problem: Problem) -> int:
    """Return the height of the subtrees of clients whose losses are computed in one pass.

    It depends on the data alone, so that the losses have the same bits for any number of workers.
    """
    own = problem.clients
    if not (isinstance(own, ModuleClients) and is_plain_cross_entropy(own.loss)):
        return 0
    clients = _SAMPLES_TOGETHER * len(problem.clients) // sum(problem.samples)
    return max(1, clients).bit_length() - 1


TestPart = slice | None
"""Some samples of a test of networks, or the whole of another test."""


def parts_of(test: Test, workers: int) -> Sequence[TestPart]:
    """Cut a test into parts for workers, if it can be cut."""
    return test.parts(workers) if isinstance(test, ModuleTest) else [None]


def measures_of(test: Test, parts: Sequence[EvaluationResult]) -> dict[str, float]:
    """Return the measures of a test from what workers have found of its parts."""
    if not isinstance(test, ModuleTest):
        return parts[0].test
    with _explained_test():
        outputs = torch.from_numpy(np.concatenate([part.outputs for part in parts]))
        return test.measures(outputs.to(test.held_out.targets.device))


def _explained_test() -> AbstractContextManager[None]:
    return explain_errors("the test of the model failed")


def evaluate(
    setup: WorkerSetup, request: EvaluationRequest, part: range | TestPart
) -> EvaluationResult:
    """Measure the losses of a range of clients, or a part of the test."""
    problem, z = setup.problem, request.z.to(setup.problem.start.device)
    problem.buffers.copy_(request.buffers)
    if isinstance(part, range):
        return _losses(problem, z, part, gradient=request.gradient)
    with _explained_test():
        if part is None:
            return EvaluationResult(test=problem.test(z))
        assert isinstance(problem.test, ModuleTest)
        outputs = problem.test.held_out.outputs(z, part)
        if outputs.dtype == torch.bfloat16:  # which NumPy does not have
            outputs = outputs.float()
        return EvaluationResult(outputs=outputs.cpu().numpy())


def _losses(problem: Problem, z: Tensor, clients: range, *, gradient: bool) -> EvaluationResult:
    """Return the losses of some clients, and their share of ∇f(z) if it is wanted."""
    found, total = EvaluationResult(), Tree()
    if together := group_height(problem):
        assert isinstance(problem.clients, ModuleClients)
        for first in range(clients.start, clients.stop, 1 << together):
            group = range(first, min(first + (1 << together), clients.stop))
            shares = [problem.weights[client] / problem.total_weight for client in group]
            with explain_errors(f"the losses of clients from {first} on could not be computed"):
                own = problem.clients.measured(z, group, shares if gradient else ())
            found.losses += own[0]
            total.push({"gradient": own[1]}, height_of(group))
    else:
        for client in clients:
            with explain_errors(f"the loss of client {client} could not be computed"):
                objective = problem.clients[client]
                if not gradient:
                    found.losses.append(objective.value(z))
                    continue
                loss, slope = objective.value_and_gradient(z)
                found.losses.append(loss)
                total.push({"gradient": problem.weights[client] / problem.total_weight * slope})
    found.gradient = total.total() if gradient else {}
    return found
