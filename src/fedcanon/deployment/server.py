"""The server of a deployment.

An update is used at most once, and only in the round and the generation for which it was asked. The
state of the engine is part of the run's checkpoint, which is durable before the next round begins.
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

from torch import Tensor

from fedcanon.algorithms import Mixed, Recalling, State
from fedcanon.checkpoint import Part
from fedcanon.compression import decoded
from fedcanon.deployment.membership import Membership
from fedcanon.deployment.protocol import START, Message, Network, Reply, packed
from fedcanon.deployment.relay import make_relay
from fedcanon.deployment.states import ClientStates
from fedcanon.deployment.status import Status
from fedcanon.deployment.validity import Fault, exceeds, fault, measures_fault, pooled_measures
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
"""The run ends after so many attempts in a row in which every client that was asked has failed."""


@dataclass
class _Round:
    """The current round: the broadcast, and the updates that have been accepted so far.

    ``expected`` is an update with the names, shapes and types that all updates must have;
    ``updates`` are the names of updates, by client, and ``slots`` the places of new states.
    """

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
    """Makes engines for real clients, which may answer late or not at all.

    Args:
        network: Carries messages to the clients and back.
        keeper: Who keeps client states: the "server", or each "client" its own.
        minimum: Updates that a round needs; clients are asked again if there are fewer.
        deadline: Seconds after which a round ends without the clients that have not answered.
        max_restarts: How often a client may lose its state before it is excluded.
        by_samples: Whether the weight of a client that joins is its number of samples, and not 1.
        state_memory: The server keeps client states on disk if they need more than so many bytes.
        pause: Seconds to wait before clients are asked again.
    """

    network: Network
    keeper: Literal["server", "client"] = "server"
    minimum: int = 1
    deadline: float = 600.0
    max_restarts: int = 3
    by_samples: bool = False
    state_memory: int = GIB
    pause: float = 2.0

    def __call__(self, problem: Problem, rules: Rules) -> DeployedEngine:
        """Make the engine for a problem."""
        return DeployedEngine(problem, rules, self)


@dataclass
class DeployedEngine(Engine):
    """Runs rounds with clients behind a network; see ``Deployment`` for the settings."""

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
        self.membership = Membership(dict(enumerate(weights)), self.settings.max_restarts)
        algorithm = self.rules.algorithm
        self._aggregation = make_aggregation(algorithm, weights, self.rules.aggregation)
        self._relay, self._is_mixed = make_relay(algorithm), isinstance(algorithm, Mixed)
        self._recalled = algorithm.recalled if isinstance(algorithm, Recalling) else frozenset()
        self._status = Status(self.keeper)
        self._open: dict[str, int] = {}
        self._begin(self.problem.start)

    def available(self) -> Sequence[int]:
        if not self.membership.members:
            raise FedcanonError("no client is left: all have left or were excluded.")
        return sorted(self.membership.members)

    # A round

    def collect(
        self, t: int, participants: Sequence[int], sent: State, *, complete: bool = False
    ) -> Collected:
        started, asked = time.monotonic(), list(participants)
        self._round = _Round(t, {**sent, BUFFERS: self.buffers})
        updates, members = self._round.updates, self.membership.members
        needed = len(members) if complete else min(self.settings.minimum, len(members))

        def ask() -> bool:
            self._ask([client for client in asked if client not in updates])
            if len(updates) >= needed:
                return True
            self._status.note(f"round {t}: only {len(updates)} of {needed} needed updates came")
            self._status.write(t, self.membership, self.network.present())
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
        self._status.add_round(seconds, self._round.client_seconds, self._round.traffic)
        mean, share = self._aggregate(sorted(updates))
        self._new_buffers = mean.pop(BUFFERS)
        return Collected(mean, share, self._round.traffic, self._round.prox_calls)

    def _ask(self, clients: Sequence[int]) -> None:
        """Ask clients for updates, and accept those that come before the deadline."""
        present = self.network.present()
        messages = [self._message(client) for client in clients if client in present]
        for message in messages:
            self._round.traffic.down(message.content)
        for client, reply in self._replies(messages):
            refused = self._reason_to_refuse(client, reply) or self._accept(client, reply)
            if refused is not None:
                event = f"round {self._round.t}: refused the update of client {client}: {refused}"
                self._status.note(event)

    def _message(self, client: int) -> Message:
        sent, acks = own_rows(self._round.sent, client), self.membership.acks
        generation, t = self.membership.generation, self._round.t
        message = partial(Message, uuid.uuid4().hex, client, "train", self.run, generation, t)
        if self.keeper == "server":
            state = self.states.read(client)
            needed = self._relay.ask(state, sent, compressed=self.rules.is_compressed)
            return message(packed({**needed, BUFFERS: sent[BUFFERS]}))
        recalls = client in self.membership.last_accepted
        if client not in acks and sent.get("z") is not self.states.start:
            sent = {**sent, START: self.states.start}
        hidden = self._recalled if recalls else frozenset()
        content = packed({name: entry for name, entry in sent.items() if name not in hidden})
        return message(content, keeps=True, ack=acks.get(client), recalls=recalls)

    def _reason_to_refuse(self, client: int, reply: Reply) -> str | None:
        """Return why an update cannot be accepted, or None.

        Raises:
            StartOverError: Client and server do not agree on the client's last accepted update.
        """
        generation = self.membership.generation
        if client in self._round.updates:
            return "a second answer"
        if reply.kind == "mismatch" and self.keeper == "client":
            lost = f"client {client} or the server has lost its state"
            self._status.note(f"{lost}: a new generation begins")
            self.membership.record_mismatch(client, reply.generation)
            if self._is_mixed and client not in self.membership.members:
                raise FedcanonError(f"client {client} is {self.membership.gone[client]}.")
            raise StartOverError(f"{lost}.")
        if (reply.kind, reply.generation, reply.round) != ("update", generation, self._round.t):
            return "from another round"
        if self.keeper == "client" and reply.base != self.membership.acks.get(client):
            return "not based on the client's last accepted update"
        if self._round.expected is None:
            self._round.expected = self._expected(client)
        return fault(reply.content, self._round.expected)

    def _expected(self, client: int) -> State:
        """Return an update with the names, shapes and types that a client's update must have."""
        sent, idle = own_rows(self._round.sent, client), IdleWork(self.rules.compressor)
        state = self.rules.algorithm.client_init(self.states.start)
        if self.keeper == "server":
            needed = self._relay.ask(state, sent, compressed=self.rules.is_compressed)
            answer = self._relay.answer(needed, idle)
        else:
            answer, _ = self.rules.algorithm.local(state, sent, idle)
        return {**answer, BUFFERS: sent[BUFFERS]}

    def _accept(self, client: int, reply: Reply) -> str | None:
        """Accept an update for this round; return why not if it is too large."""
        current, upload = self._round, decoded(reply.content)
        buffers, state = upload.pop(BUFFERS), None
        if self.keeper == "server":
            sent = own_rows(current.sent, client)
            upload, state = self._relay.settle(self.states.read(client), sent, upload)
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

    def _aggregate(self, clients: Sequence[int]) -> tuple[Vectors, float]:
        """Return the aggregated upload of these clients, and their share of the total weight."""
        members = self.membership.members
        weights, uploads = [members[client] for client in clients], Accumulator(self._aggregation)
        for client, weight in zip(clients, weights, strict=True):
            uploads.push(self._round.uploads[client], weight)
        share = math.fsum(weights) / math.fsum(members.values())
        return self._aggregation.finish(uploads.parts(), weights), share

    def commit(self) -> None:
        self.buffers = self._new_buffers
        self.membership.accept(self._round.t, self._round.updates)
        self.states.commit(self._round.slots)
        self._status.write(self._round.t + 1, self.membership, self.network.present())

    # Messages and replies

    def _repeat(self, ask: Callable[[], bool], answers: Sized) -> None:
        """Call ``ask`` until it returns True; raise an error if every client keeps failing."""
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
        """Send messages and yield replies until the deadline, each with its client.

        A message stays open until it is answered or another round begins: a reply that is too late
        for one attempt is used in the next one.
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
                    self._status.note(f"ignored a late or repeated reply of client {reply.client}")
                elif reply.kind in ("failure", "lost"):
                    if reply.kind == "failure":
                        self._errors.append(FedcanonError(reply.reason))
                    self._status.note(f"client {client} has failed: {reply.reason}")
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
                self._status.note(f"refused the measures of client {client}: {refused}")
                if refused is Fault.NOT_FINITE:
                    diverged = f"the loss of client {client} is not finite: {DIVERGED}"
                    self._errors.append(DivergenceError(diverged))
            return bool(found)

        self._repeat(ask, found)
        weights = {client: self.membership.members[client] for client in sorted(found)}
        taken, total = math.fsum(weights.values()), Tree()
        gradient = gradient and len(found) == len(self.membership.members)  # ∇f needs all clients
        for client, weight in weights.items():
            if gradient:
                total.push({"gradient": weight / taken * found[client]["gradient"]})
        losses = {client: found[client]["loss"] for client in weights}
        test = pooled_measures(found)
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
        members, present = self.membership.members, self.network.present()
        left = sorted(self._status.leaving() & members.keys())
        joined = sorted(present.keys() - members.keys() - self.membership.gone.keys())
        if not (left or joined):
            return server
        if self._is_mixed:
            raise FedcanonError(
                f"{type(self.rules.algorithm).__name__} needs the same clients in all rounds: "
                "begin a new run with those that are connected."
            )
        for client in left:
            self._status.note(f"client {client} has left permanently")
            self.membership.remove(client, "left")
        for client in joined:
            self._status.note(f"client {client} has joined")
            members[client] = float(present[client].samples) if self.settings.by_samples else 1.0
        averages = self.rules.algorithm.averages
        if self.keeper == "client" or not averages:
            raise StartOverError("clients have joined or left.")
        self.states.restrict(members)
        weights = {client: members[client] for client in self.available()}
        means = {ours: self.states.mean(theirs, weights) for ours, theirs in averages.items()}
        return {**server, **means}

    def start_over(self, z: Tensor) -> None:
        self.membership.begin_generation()
        self._begin(z)

    def _begin(self, z: Tensor) -> None:
        """Discard all client states; every client starts again from the model ``z``."""
        clients = len(self.membership.members) if self.keeper == "server" else 0
        self.states = ClientStates(self.rules.algorithm, z, clients, self.settings.state_memory)

    # Files and checkpoints

    def use_folder(self, folder: Path) -> None:
        self._status.folder = folder
        self.network.use_folder(folder)

    def close(self) -> None:
        self.network.close()

    def state(self) -> State:
        return {
            "run": self.run,
            "membership": self.membership.state(),
            "buffers": self.buffers,
            "generation_start": self.states.start,
            "clients": {str(c): part for c, part in self.states.parts().items()},
        }

    def load(self, state: State) -> None:
        if "membership" not in state:
            raise FedcanonError("this run was not on Flower: resume it with another engine.")
        self.run = state["run"]
        self.membership.load(state["membership"])
        self.buffers = state["buffers"]
        self._begin(state["generation_start"])
        if self.keeper == "server":
            parts: dict[int, Part] = {int(c): part for c, part in state["clients"].items()}
            self.states.load(parts, len(self.membership.members))
