"""The server of a deployment.

An update is used at most once, and only in the round and the generation for which it was asked. The
state of the engine is part of the run's checkpoint, which is durable before the next round begins.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from torch import Tensor

from fedcanon.algorithms import Mixed, Recalling, State
from fedcanon.compression import decoded
from fedcanon.deployment.collection import Collection, Vault
from fedcanon.deployment.exchange import Exchange
from fedcanon.deployment.measuring import Measuring
from fedcanon.deployment.membership import Membership
from fedcanon.deployment.protocol import START, Message, Reply, joined, parted
from fedcanon.deployment.relay import make_relay
from fedcanon.deployment.settings import NEEDS_STATES, Deployment
from fedcanon.deployment.states import ClientStates
from fedcanon.deployment.status import ADMIT, EXCLUDE, RoundTimes, Status
from fedcanon.deployment.validity import Fault, Usual, fault, largest_norm
from fedcanon.engines import Collected, Evaluation, MeasuresWhileTraining, Rules
from fedcanon.engines.client import BUFFERS
from fedcanon.engines.combining import Combining
from fedcanon.engines.noisy_mean import NoisyMean
from fedcanon.engines.robust import Robust
from fedcanon.engines.traffic import byte_size, own_rows
from fedcanon.engines.work import IdleWork
from fedcanon.errors import DivergenceError, FedcanonError, RegroupError, StartOverError
from fedcanon.objectives import Problem
from fedcanon.privacy import ClientPrivacy

DIVERGED = "the run has diverged. Use smaller steps (beta, alpha), or look for missing values."

ODD_LOSS = 1000.0
"""A loss of more than so many times what is usual is not believed."""


@dataclass
class DeployedEngine(MeasuresWhileTraining):
    """Runs rounds with clients behind a network; see ``Deployment`` for the settings."""

    problem: Problem
    rules: Rules
    settings: Deployment
    durable_rounds = True
    buffers: Tensor = field(init=False)
    run: str = field(init=False, default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        if self.rules.records is not None and self.settings.keeper == "server":
            raise FedcanonError(NEEDS_STATES)
        self.buffers = self.problem.start_buffers
        self.network, self.keeper = self.settings.network, self.settings.keeper
        weights = self.problem.weights
        self.membership = Membership(dict(enumerate(weights)), self.settings.max_restarts)
        algorithm = self.rules.algorithm
        self._combining = Combining(self.problem, self.rules)
        self._check_keeper()
        self._relay, self._is_mixed = make_relay(algorithm), isinstance(algorithm, Mixed)
        self._recalled = algorithm.recalled if isinstance(algorithm, Recalling) else frozenset()
        self.status = Status(self.keeper)
        self._exchange = Exchange(
            self.network, self.status, self.settings.deadline, self.settings.pause
        )
        self._usual, self._usual_loss = Usual(self.settings.outlier), Usual(ODD_LOSS)
        self._wanted: Measuring | None = None
        self._begin(self.problem.start)

    def _check_keeper(self) -> None:
        """Raise a ``FedcanonError`` if somebody looks at states that the server does not have."""
        if self.keeper == "server":
            return
        if isinstance(self._combining.rule, Robust):
            raise FedcanonError(
                "a robust rule needs the states of all clients at the server: use "
                'deployment.state = "server".'
            )
        if self.rules.adversary is not None:
            raise FedcanonError(
                "an adversary needs the states of all clients at the server: use "
                'deployment.state = "server".'
            )

    def available(self) -> Sequence[int]:
        if not self.membership.members:
            raise FedcanonError("no client is left: all have left or were excluded.")
        return sorted(self.membership.members)

    # A round

    def collect(
        self, t: int, participants: Sequence[int], sent: State, *, complete: bool = False
    ) -> Collected:
        started, asked = time.monotonic(), list(participants)
        self._round = Collection(t, {**sent, BUFFERS: self.buffers}, self._vault())
        updates, members = self._round.updates, self.membership.members
        needed = len(members) if complete else min(self.settings.minimum, len(members))
        if isinstance(self._combining.rule, NoisyMean) and self._combining.rule.expected:
            needed = 0  # clients are drawn in secret: their number must have no effect

        def ask() -> bool:
            self._ask([client for client in asked if client not in updates])
            if len(updates) >= needed:
                return True
            self._report(t, f"only {len(updates)} of {needed} needed updates came")
            self._round.require_hope(needed, members)
            if self.rules.privacy is None:  # of private clients only those are asked that count it
                others = [client for client in self.available() if client not in asked]
                asked.extend(others[: needed - len(updates)])
            return False

        try:
            self._exchange.repeat(ask, updates)
        except BaseException:
            self.states.release(self._round.slots)
            raise
        collected = time.monotonic()
        combined, share = self._round.combine(self._combining, members, self.states)
        mean, level, verdict, waits = combined
        self._new_buffers, ended = mean.pop(BUFFERS), time.monotonic()
        if verdict is not None:
            self.status.distances = verdict.distances
        times = RoundTimes(1, ended - started, self._round.client_seconds, ended - collected)
        self.status.add_round(times, self._round.traffic)
        evaluation = self._evaluated() if self._wanted and self._wanted.found else None
        prox_calls = self._round.prox_calls
        return Collected(
            mean, share, self._round.traffic, prox_calls, evaluation, level, verdict, waits
        )

    def _report(self, t: int, shortage: str) -> None:
        """Say why a round does not end yet, and begin it anew if the operator excludes a client."""
        self.status.note(f"round {t}: {shortage}")
        self.status.write(t, self.membership, self.network.present())
        if self.status.ordered(EXCLUDE) & self.membership.members.keys():
            raise RegroupError("clients have left.")

    def _ask(self, clients: Sequence[int]) -> None:
        """Ask clients for updates, and accept those that come before the deadline."""
        present, wanted = self.network.present(), self._wanted
        question = {} if wanted is None else wanted.question(self._round.sent, self.model_buffers)

        def messages() -> Iterator[Message]:
            for client in clients:
                if client in present:
                    message = self._message(client)
                    self._round.traffic.down(message.content)
                    yield replace(message, content=joined(message.content, question))
            if wanted is not None:  # clients that do not train now only measure
                asked = {*clients, *wanted.found}
                others = [c for c in self.available() if c in present and c not in asked]
                yield from wanted.messages(others, self.run, self.model_buffers)

        for client, reply in self._exchange.replies(messages()):
            content, measures = parted(reply.content)
            if reply.kind == "measures":
                self._take_measures(client, reply, content)
                continue
            if client in self._round.updates:
                self.status.note(f"ignored a second answer of client {client}")
                continue
            reply = replace(reply, content=content)
            refused = self._reason_to_refuse(client, reply) or self._accept(client, reply)
            if refused is not None:
                self._refuse(client, refused)
            elif measures:
                self._take_measures(client, reply, measures)
        if isinstance(self.rules.privacy, ClientPrivacy):
            return  # updates are clipped, and one client must not decide over others
        for client in self._usual.odd(self._round.sizes):
            size, usual = self._round.sizes[client], self._usual.median
            self._refuse(client, f"{Fault.TOO_LARGE}: a norm of {size:.3g}, usual is {usual:.3g}")

    def _refuse(self, client: int, why: str) -> None:
        """Refuse an update, possibly one that was accepted before all of the round were known."""
        if client in self._round.slots:
            self.states.release({client: self._round.slots.pop(client)})
        self._blame(client, f"round {self._round.t}", why)
        self._round.refuse(client, why)

    def _blame(self, client: int, what: str, why: str) -> None:
        self.status.refused(client, what, why)
        self.membership.record_refusal(client)

    def _message(self, client: int) -> Message:
        sent, acks = own_rows(self._round.sent, client), self.membership.acks
        generation, t = self.membership.generation, self._round.t
        message = partial(Message, uuid.uuid4().hex, client, "train", self.run, generation, t)
        if self.keeper == "server":
            state = self.states.read(client)
            needed = self._relay.ask(state, sent, compressed=self.rules.is_compressed)
            return message(self._round.packed({**needed, BUFFERS: sent[BUFFERS]}))
        recalls = client in self.membership.last_accepted
        if client not in acks and sent.get("z") is not self.states.start:
            sent = {**sent, START: self.states.start}
        hidden = self._recalled if recalls else frozenset()
        shown = {name: entry for name, entry in sent.items() if name not in hidden}
        return message(self._round.packed(shown), keeps=True, ack=acks.get(client), recalls=recalls)

    def _reason_to_refuse(self, client: int, reply: Reply) -> str | None:
        """Return why an update cannot be accepted, or None.

        Raises:
            StartOverError: Client and server do not agree on the client's last accepted update.
        """
        generation = self.membership.generation
        if reply.kind == "mismatch" and self.keeper == "client":
            if not self.membership.is_credible(reply.generation):
                return "it names a generation that cannot be"
            self._start_over_because_of(client, reply.generation)
        if (reply.kind, reply.generation, reply.round) != ("update", generation, self._round.t):
            return "from another round"
        if self.keeper == "client" and reply.base != self.membership.acks.get(client):
            return "not based on the client's last accepted update"
        if not reply.update:
            return "without a name"
        if self._round.expected is None:
            self._round.expected = self._expected(client)
        return fault(reply.content, self._round.expected)

    def _start_over_because_of(self, client: int, reported: int) -> None:
        lost = f"client {client} or the server has lost its state"
        self.status.note(f"{lost}: a new generation begins")
        self.membership.record_mismatch(client, reported)
        if self._is_mixed and client not in self.membership.members:
            raise FedcanonError(f"client {client} is {self.membership.gone[client]}.")
        raise StartOverError(f"{lost}.")

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
        buffers, state = upload.pop(BUFFERS), State()
        if self.keeper == "server":
            sent = own_rows(current.sent, client)
            upload, state = self._relay.settle(self.states.read(client), sent, upload)
        if largest_norm(upload) > self.rules.compressor.norm_bound:
            return Fault.TOO_LARGE
        if self.keeper == "server":
            current.slots[client] = self.states.put(state)
        size = largest_norm(upload, state)
        current.accept(client, reply, {**upload, BUFFERS: buffers}, size)
        self.status.answered(client, reply.seconds, byte_size(reply.content))
        return None

    def commit(self) -> None:
        self.buffers = self._new_buffers
        self.membership.accept(self._round.t, self._round.updates)
        self.states.commit(self._round.slots)
        self._combining.commit()
        self.status.write(self._round.t + 1, self.membership, self.network.present())

    # Measures

    def evaluate(self, z: Tensor, *, gradient: bool) -> Evaluation:
        wanted = self._wanted = Measuring(z, gradient, self._vault())

        def ask() -> bool:
            present = self.network.present()
            clients = [client for client in self.available() if client in present]
            messages = wanted.messages(clients, self.run, self.model_buffers)
            for client, reply in self._exchange.replies(messages):
                self._take_measures(client, reply, reply.content)
            return bool(wanted.found)

        self._exchange.repeat(ask, wanted.found)
        return self._evaluated()

    def measure_with_next_round(self, z: Tensor, *, gradient: bool) -> None:
        self._wanted = Measuring(z, gradient, self._vault())

    def _evaluated(self) -> Evaluation:
        """Return what was measured, without losses that cannot be believed."""
        wanted, self._wanted = self._wanted, None
        assert wanted is not None
        odd = self._usual_loss.odd({c: abs(found["loss"]) for c, found in wanted.found.items()})
        for client in odd:
            del wanted.found[client]
            self._blame(client, "measures", "a loss that cannot be believed")
        return wanted.evaluation(self.membership.members, self.test(wanted.z))

    def _take_measures(self, client: int, reply: Reply, measures: State) -> None:
        if self._wanted is None:
            return
        refused = self._wanted.accept(client, decoded(measures))
        if refused is None:
            self.status.answered(client, reply.seconds, byte_size(measures))
            return
        self._blame(client, "measures", refused)
        if refused is Fault.NOT_FINITE:
            diverged = f"the loss of client {client} is not finite: {DIVERGED}"
            self._exchange.errors.append(DivergenceError(diverged))

    def _vault(self) -> Vault:
        return Vault(len(self.membership.members), self.settings.state_memory)

    # Members and restarts

    def regroup(self, server: State) -> State:
        members, present = self.membership.members, self.network.present()
        for client in self.status.ordered(ADMIT):
            self.status.withdraw(ADMIT, client)
            self.membership.gone.pop(client, None)
        left = sorted(self.status.ordered(EXCLUDE) & members.keys())
        new = sorted(present.keys() - members.keys() - self.membership.gone.keys())
        joined = [client for client in new if self._may_join(client, present[client].samples)]
        if not (left or joined):
            return server
        if self._is_mixed:
            raise FedcanonError(
                f"{type(self.rules.algorithm).__name__} needs the same clients in all rounds: "
                "begin a new run with those that are connected."
            )
        for client in left:
            self.status.note(f"client {client} is excluded by the operator")
            self.membership.remove(client, "excluded by the operator")
        for client in joined:
            self.status.note(f"client {client} has joined")
            members[client] = self.settings.weights.of(client, present[client].samples)
        averages = self.rules.algorithm.averages
        if self.keeper == "client" or not averages:
            raise StartOverError("clients have joined or left.")
        self.states.restrict(members)
        weights = {client: members[client] for client in self.available()}
        if self._combining.over_levels:  # the rule replaces the mean in every round
            return server
        means = {ours: self.states.mean(theirs, weights) for ours, theirs in averages.items()}
        return {**server, **means}

    def _may_join(self, client: int, claimed: int) -> bool:
        others = self.membership.members.values()
        objection = self.settings.weights.objection(client, claimed, others)
        if objection is not None:
            self.status.note(f"not admitted: {objection}")
        return objection is None

    def start_over(self, z: Tensor) -> None:
        self.membership.begin_generation()
        self._begin(z)

    def _begin(self, z: Tensor) -> None:
        """Discard all client states; every client starts again from the model ``z``."""
        self._combining.start_over()
        clients = len(self.membership.members) if self.keeper == "server" else 0
        self.states = ClientStates(self.rules.algorithm, z, clients, self.settings.state_memory)

    # Files and checkpoints

    def use_folder(self, folder: Path) -> None:
        self.status.folder = folder
        self.network.use_folder(folder)

    def close(self) -> None:
        self.network.close()

    def state(self) -> State:
        return {
            "run": self.run,
            "membership": self.membership.state(),
            "usual": {"updates": self._usual.state(), "losses": self._usual_loss.state()},
            "buffers": self.buffers,
            "combining": self._combining.state(),
            "generation_start": self.states.start,
            "clients": self.states.parts(),
        }

    def load(self, state: State) -> None:
        if "membership" not in state:
            raise FedcanonError("this run was not on Flower: resume it with another engine.")
        self.run = state["run"]
        self.membership.load(state["membership"])
        self._usual.load(state["usual"]["updates"])
        self._usual_loss.load(state["usual"]["losses"])
        self.buffers = state["buffers"]
        self._begin(state["generation_start"])
        self._combining.load(state["combining"])
        if self.keeper == "server":
            self.states.load(state["clients"], len(self.membership.members))
