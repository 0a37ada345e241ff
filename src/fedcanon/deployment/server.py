"""The server's side of a deployment.

A reply counts once, for the round and the generation in which it was asked for, or not at all. What
the engine remembers is part of the run's checkpoint, which is durable before the next round begins.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from fedcanon.algorithms import Mixed, Recalling, State
from fedcanon.checkpoint import Part
from fedcanon.compression import decoded
from fedcanon.deployment.books import Books
from fedcanon.deployment.protocol import START, Message, Network, Reply, packed
from fedcanon.deployment.relay import relay_of
from fedcanon.deployment.states import KeptStates
from fedcanon.deployment.status import Status
from fedcanon.deployment.validity import Fault, aggregated, exceeds, fault, measures_fault
from fedcanon.engines import Collected, Engine, Evaluation, Rules, Traffic
from fedcanon.engines.aggregation import Accumulator, make_aggregation
from fedcanon.engines.client import BUFFERS
from fedcanon.engines.summation import Tree, Vectors
from fedcanon.engines.traffic import own_rows
from fedcanon.engines.work import IdleWork
from fedcanon.errors import DivergenceError, FedcanonError, RegroupError, StartOverError
from fedcanon.objectives import Problem
from fedcanon.objectives.problem import no_test
from fedcanon.units import GIB

DIVERGED = "the run has diverged. Use smaller steps (beta, alpha), or look for missing values."

ATTEMPTS = 5
"""How often clients may fail by errors of their own, and nobody answer, before the run ends."""


@dataclass
class _Round:
    """A round that is going on: what was sent, and the updates that will count."""

    t: int
    sent: State
    expected: State | None = None
    updates: dict[int, str] = field(default_factory=dict)
    uploads: dict[int, Vectors] = field(default_factory=dict)
    slots: dict[int, int] = field(default_factory=dict)
    traffic: Traffic = field(default_factory=Traffic)
    prox_calls: int = 0
    client_seconds: float = 0.0


@dataclass(frozen=True)
class Deployment:
    """The engine of real clients, which answer when they answer.

    Args:
        network: What carries messages to the clients.
        keeper: Where client states live: with the "server", or with each "client".
        minimum: Updates that a round needs; with fewer, those that are missing are asked again.
        deadline: Seconds after which a round ends without those that have not answered.
        most_restarts: How often a client may lose its state before it is excluded.
        by_samples: Whether a client that joins weighs as many as it has samples, and not 1.
        state_memory: Bytes of client states beyond which the server keeps them on disk.
        pause: Seconds before clients are asked again.
    """

    network: Network
    keeper: Literal["server", "client"] = "server"
    minimum: int = 1
    deadline: float = 600.0
    most_restarts: int = 3
    by_samples: bool = False
    state_memory: int = GIB
    pause: float = 2.0

    def __call__(self, problem: Problem, rules: Rules) -> DeployedEngine:
        """An engine for a problem."""
        return DeployedEngine(problem, rules, self)


@dataclass
class DeployedEngine(Engine):
    """Rounds over clients behind a network; see ``Deployment`` for its settings."""

    problem: Problem
    rules: Rules
    settings: Deployment
    durable_rounds = True
    buffers: Tensor = field(init=False)
    run: str = field(init=False, default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        self.buffers = self.problem.start_buffers
        self.network, self.keeper = self.settings.network, self.settings.keeper
        weights = self.problem.weights
        self.books = Books(dict(enumerate(weights)), self.settings.most_restarts)
        algorithm = self.rules.algorithm
        self._aggregation = make_aggregation(algorithm, weights, self.rules.aggregation)
        self._relay, self._is_mixed = relay_of(algorithm), isinstance(algorithm, Mixed)
        self._recalled = algorithm.recalled if isinstance(algorithm, Recalling) else frozenset()
        self._status = Status()
        self._open: dict[str, int] = {}
        self._begin(self.problem.start)

    def available(self) -> Sequence[int]:
        if not self.books.members:
            raise FedcanonError("no client is left: all have left or were excluded.")
        return sorted(self.books.members)

    # A round

    def collect(
        self, t: int, participants: Sequence[int], sent: State, *, complete: bool = False
    ) -> Collected:
        started, asked = time.monotonic(), list(participants)
        self._round = _Round(t, {**sent, BUFFERS: self.buffers})
        updates = self._round.updates
        members = self.books.members
        needed = len(members) if complete else min(self.settings.minimum, len(members))

        def ask() -> bool:
            self._ask([client for client in asked if client not in updates])
            if len(updates) >= needed:
                return True
            self._status.note(f"round {t}: {len(updates)} of {needed} needed updates came")
            self._status.write(self.books, t, self.keeper, self.network.present())
            if self._status.leaving() & members.keys():
                raise RegroupError("clients have left.")
            others = [client for client in self.available() if client not in asked]
            asked.extend(others[: needed - len(updates)])
            return False

        try:
            self._repeat(ask, updates)
        except BaseException:
            self.states.release(self._round.slots)
            raise
        seconds = time.monotonic() - started
        self._status.took(seconds, self._round.client_seconds, self._round.traffic)
        mean, share = self._aggregate(sorted(updates))
        self._new_buffers = mean.pop(BUFFERS)
        return Collected(mean, share, self._round.traffic, self._round.prox_calls)

    def _ask(self, clients: Sequence[int]) -> None:
        """Ask clients for their updates, and take those that come before the deadline."""
        present = self.network.present()
        messages = [self._message(client) for client in clients if client in present]
        for message in messages:
            self._round.traffic.down(message.content)
        for client, reply in self._replies(messages):
            refused = self._refused(client, reply)
            if refused is None:
                refused = self._accept(client, reply)
            if refused is not None:
                self._status.note(f"round {self._round.t}: client {client}: {refused}")

    def _message(self, client: int) -> Message:
        books, sent = self.books, own_rows(self._round.sent, client)
        message = partial(
            Message, uuid.uuid4().hex, client, "train", self.run, books.generation, self._round.t
        )
        if self.keeper == "server":
            state = self.states.of(client)
            needed = self._relay.ask(state, sent, compressed=self.rules.is_compressed)
            return message(packed({**needed, BUFFERS: sent[BUFFERS]}))
        recalls = client in books.last_counted
        if client not in books.acks and sent.get("z") is not self.states.start:
            sent = {**sent, START: self.states.start}
        hidden = self._recalled if recalls else frozenset()
        return message(
            packed({name: entry for name, entry in sent.items() if name not in hidden}),
            keeps=True,
            ack=books.acks.get(client),
            recalls=recalls,
        )

    def _refused(self, client: int, reply: Reply) -> str | None:
        """Why an update cannot count, if it cannot."""
        generation = self.books.generation
        if client in self._round.updates:
            return "a second answer"
        if reply.kind == "mismatch" and self.keeper == "client":
            self._status.note(
                f"client {client} and the server have lost each other: a new generation"
            )
            self.books.blame(client, reply.generation)
            if self._is_mixed and client not in self.books.members:
                raise FedcanonError(f"client {client} is {self.books.gone[client]}.")
            raise StartOverError(f"client {client} and the server have lost each other.")
        if (reply.kind, reply.generation, reply.round) != ("update", generation, self._round.t):
            return "not of this round"
        if self.keeper == "client" and reply.base != self.books.acks.get(client):
            return "of another base"
        if self._round.expected is None:
            self._round.expected = self._expected(client)
        return fault(reply.content, self._round.expected)

    def _expected(self, client: int) -> State:
        """An update of the form that those of honest clients have."""
        sent, idle = own_rows(self._round.sent, client), IdleWork(self.rules.compressor)
        state = self.rules.algorithm.client_init(self.states.start)
        if self.keeper == "server":
            needed = self._relay.ask(state, sent, compressed=self.rules.is_compressed)
            answer = self._relay.answer(needed, idle)
        else:
            answer, _ = self.rules.algorithm.local(state, sent, idle)
        return {**answer, BUFFERS: sent[BUFFERS]}

    def _accept(self, client: int, reply: Reply) -> str | None:
        """Let an update count with this round, if it is not too large."""
        current, upload = self._round, decoded(reply.content)
        buffers, state = upload.pop(BUFFERS), None
        if self.keeper == "server":
            sent = own_rows(current.sent, client)
            upload, state = self._relay.settle(self.states.of(client), sent, upload)
        if exceeds(upload, self.rules.compressor.norm_bound):
            return Fault.TOO_LARGE
        if state is not None:
            current.slots[client] = self.states.put(state)
        current.updates[client] = reply.update
        current.uploads[client] = {**upload, BUFFERS: buffers}
        current.traffic.up(reply.content)
        current.prox_calls += reply.prox_calls
        current.client_seconds = max(current.client_seconds, reply.seconds)
        return None

    def _aggregate(self, counted: Sequence[int]) -> tuple[Vectors, float]:
        """What the uploads of a round become, and their share of the weight."""
        members = self.books.members
        weights, uploads = [members[client] for client in counted], Accumulator(self._aggregation)
        for client, weight in zip(counted, weights, strict=True):
            uploads.push(self._round.uploads[client], weight)
        share = math.fsum(weights) / math.fsum(members.values())
        return self._aggregation.finish(uploads.parts(), weights), share

    def commit(self) -> None:
        self.buffers = self._new_buffers
        self.books.count(self._round.t, self._round.updates)
        self.states.commit(self._round.slots)
        self._status.write(self.books, self._round.t + 1, self.keeper, self.network.present())

    # Messages and replies

    def _repeat(self, ask: Callable[[], bool], answers: Sized) -> None:
        """Ask until it was enough; not for ever where all clients fail by errors of their own."""
        self._open, failed = {}, 0
        while True:
            self._errors, self._waited_for = list[FedcanonError](), 0
            if ask():
                return
            hopeless = not answers and len(self._errors) == self._waited_for > 0
            failed = failed + 1 if hopeless else 0
            if failed == ATTEMPTS:
                raise self._errors[-1]
            time.sleep(self.settings.pause)

    def _replies(self, messages: list[Message]) -> Iterator[tuple[int, Reply]]:
        """Send messages; the replies to open ones, each with the client that was asked.

        A message stays open until it is answered or another round begins, so that what comes too
        late for one attempt may count for the next.
        """
        self.network.send(messages)
        self._open |= {message.id: message.client for message in messages}
        waiting = {message.id for message in messages}
        self._waited_for += len(waiting)
        end = time.monotonic() + self.settings.deadline
        while waiting and (left := end - time.monotonic()) > 0:
            replies = self.network.receive(left)
            if not replies:
                return
            for reply in replies:
                waiting.discard(reply.answers)
                client = self._open.pop(reply.answers, None)
                if client is None or client != reply.client:
                    self._status.note(f"a reply of client {reply.client} is late or doubled")
                elif reply.kind in ("failure", "lost"):
                    if reply.kind == "failure":
                        self._errors.append(FedcanonError(reply.reason))
                    self._status.note(f"client {client}: {reply.reason}")
                else:
                    yield client, reply

    # Measures

    def evaluate(self, z: Tensor, *, gradient: bool) -> Evaluation:
        content = packed({"z": z, BUFFERS: self.model_buffers, "gradient": gradient})
        found: dict[int, State] = {}

        def ask() -> bool:
            present = self.network.present()
            messages = [
                Message(uuid.uuid4().hex, client, "evaluate", self.run, 0, 0, content)
                for client in self.available()
                if client in present
            ]
            for client, reply in self._replies(messages):
                answer = decoded(reply.content)
                refused = measures_fault(answer, z if gradient else None)
                if refused is None:
                    found[client] = answer
                    continue
                self._status.note(f"client {client}: measures are {refused}")
                if refused is Fault.NOT_FINITE:
                    said = f"the loss of client {client} is not finite: {DIVERGED}"
                    self._errors.append(DivergenceError(said))
            return bool(found)

        self._repeat(ask, found)
        weights = {client: self.books.members[client] for client in sorted(found)}
        taken, total = math.fsum(weights.values()), Tree()
        gradient = gradient and len(found) == len(self.books.members)  # ∇f is that of all of them
        for client, weight in weights.items():
            if gradient:
                total.push({"gradient": weight / taken * found[client]["gradient"]})
        losses = {client: found[client]["loss"] for client in weights}
        test = aggregated(found)
        if self.problem.test is not no_test:
            self.problem.buffers.copy_(self.model_buffers)
            test = self.problem.test(z)
        return Evaluation(
            loss=sum(weights[client] / taken * loss for client, loss in losses.items()),
            losses=list(losses.values()),
            gradient=total.total()["gradient"] if gradient else None,
            test=test,
        )

    # Members and restarts

    def regroup(self, server: State) -> State:
        members, present = self.books.members, self.network.present()
        left = sorted(self._status.leaving() & members.keys())
        joined = sorted(present.keys() - members.keys() - self.books.gone.keys())
        if not (left or joined):
            return server
        if self._is_mixed:
            raise FedcanonError(
                f"{type(self.rules.algorithm).__name__} needs the same clients always: begin a new "
                "run with those that are there."
            )
        for client in left:
            self._status.note(f"client {client} has left for good")
            self.books.remove(client, "left")
        for client in joined:
            self._status.note(f"client {client} has joined")
            members[client] = float(present[client].samples) if self.settings.by_samples else 1.0
        averages = self.rules.algorithm.averages
        if self.keeper == "client" or not averages:
            raise StartOverError("clients have joined or left.")
        self.states.restrict(members)
        return {**server, **{ours: self._mean_of(theirs) for ours, theirs in averages.items()}}

    def _mean_of(self, name: str) -> Tensor:
        """Σ p_i of a vector of the clients' states, over all members."""
        members = self.books.members
        total = math.fsum(members.values())
        weighted = (members[c] / total * self.states.of(c)[name] for c in self.available())
        return sum(weighted, start=torch.zeros(()))

    def start_over(self, z: Tensor) -> None:
        self.books.begin_generation()
        self._begin(z)

    def _begin(self, z: Tensor) -> None:
        """No client has a state yet; each will begin with the model z."""
        clients = len(self.books.members) if self.keeper == "server" else 0
        self.states = KeptStates(self.rules.algorithm, z, clients, self.settings.state_memory)

    # What outlives the process

    def use_folder(self, folder: Path) -> None:
        self._status.folder = folder
        self.network.use_folder(folder)

    def close(self) -> None:
        self.network.close()

    def state(self) -> State:
        return {
            "run": self.run,
            "books": self.books.state(),
            "buffers": self.buffers,
            "generation_start": self.states.start,
            "clients": {str(c): part for c, part in self.states.parts().items()},
        }

    def load(self, state: State) -> None:
        if "books" not in state:
            raise FedcanonError("this run was not on Flower: go on with another engine.")
        self.run = state["run"]
        self.books.load(state["books"])
        self.buffers = state["buffers"]
        self._begin(state["generation_start"])
        if self.keeper == "server":
            parts: dict[int, Part] = {int(c): part for c, part in state["clients"].items()}
            self.states.load(parts, len(self.books.members))
