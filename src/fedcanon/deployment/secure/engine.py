"""The engine of deployments whose server learns sums only."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from fedcanon.algorithms import State
from fedcanon.deployment.collection import Collection as Round
from fedcanon.deployment.exchange import ATTEMPTS
from fedcanon.deployment.protocol import Kind, Message, Reply
from fedcanon.deployment.secure.journal import Journal, Opened
from fedcanon.deployment.secure.participant import broadcast_digest
from fedcanon.deployment.secure.ring import (
    UPLOAD,
    WINDOW,
    limit_of,
    noise_of,
    rounding_of,
    scale_of,
    total_of,
)
from fedcanon.deployment.secure.server import SecureSum
from fedcanon.deployment.secure.settings import check, relative_weights
from fedcanon.deployment.secure.terms import Terms
from fedcanon.deployment.server import DeployedEngine
from fedcanon.deployment.status import RoundTimes
from fedcanon.engines import Collected, Evaluation
from fedcanon.engines.client import BUFFERS
from fedcanon.engines.traffic import byte_size
from fedcanon.errors import FedcanonError, RegroupError

NO_MEASURES = (
    "secure sums hide single clients, and measures would show each of them: close the measures of "
    "this run."
)


@dataclass
class SecureEngine(DeployedEngine):
    """Runs rounds as secure sums; see ``fedcanon.deployment.secure``.

    A round is one attempt after the other until a sum is opened. Every attempt has a number of its
    own, which stands as the round in its messages and is durable before anything is sent. Clients
    drop their updates of attempts that were given up, because the next message acknowledges the
    update before those. A sum that was opened is written to the folder of the run at once, so that
    it counts even if the server is killed.
    """

    def __post_init__(self) -> None:
        check(self.problem, self.rules, self.settings)
        super().__post_init__()
        clients = len(self.settings.identities)
        self._weights = relative_weights(self.settings.weights, clients)
        self._journal, self._norms = Journal(), list[float]()
        self.attempts = self._counted = self._failed = self._refused = 0

    # A round

    def collect(
        self, t: int, participants: Sequence[int], sent: State, *, complete: bool = False
    ) -> Collected:
        started, members = time.monotonic(), self.membership.members
        self._round = Round(t, {**sent, BUFFERS: self.buffers}, self._vault())
        self._new_norms = [*self._norms, float(sent["b"].norm())][-WINDOW:]
        place = {"run": self.run, "generation": self.membership.generation, "round": t}
        place["counted"] = self._counted
        opened = self._journal.opened(place)
        if opened is None:
            needed = len(members) if complete else self.settings.minimum
            if len(members) < needed:
                left = f"only {len(members)} of {needed} needed clients are left"
                raise FedcanonError(f"{left}: admit others, or begin a new run.")
            opened = self._opened(participants, needed)
            self._journal.keep(place, opened)
        self._round.updates |= opened.updates
        times = RoundTimes(1, time.monotonic() - started, self._round.client_seconds)
        self.status.add_round(times, self._round.traffic)
        taken, everyone = self._weight_of(opened.updates), self._weight_of(members)
        mean = {UPLOAD: (opened.total / taken).to(sent["z"].dtype)}
        return Collected(mean, taken / everyone, self._round.traffic, self._round.prox_calls)

    def _weight_of(self, clients: Iterable[int]) -> float:
        return math.fsum(self._weights[client] for client in clients)

    def _opened(self, participants: Sequence[int], needed: int) -> Opened:
        """Attempt sums until one is opened that can be believed.

        Raises:
            RegroupError: An attempt of a private run has failed. The round begins anew, so that
                the next attempt is counted like every other.
        """
        while True:
            before = self.attempts
            found, why = self._attempt(participants, needed)
            if found is not None and self._is_credible(found):
                self._failed = self._refused = 0
                return found
            if found is not None:
                self._refused, why = self._refused + 1, "the sum is longer than it can be"
            self._failed = self._failed + 1 if self._hopeless else 0
            if ATTEMPTS in (self._failed, self._refused):
                error = self._exchange.errors[-1] if self._failed == ATTEMPTS else why
                self._failed = self._refused = 0
                raise FedcanonError(f"round {self._round.t} cannot end: {error}")
            self._report(self._round.t, why)
            self.status.wait(self.settings.pause)
            if self.rules.privacy is not None and self.attempts > before:
                raise RegroupError("an attempt has failed.")

    def _is_credible(self, found: Opened) -> bool:
        """Tell whether clients that obey their clip can have made this sum."""
        limit = limit_of(self.rules)
        if noise_of(self.rules) or math.isinf(limit):
            return True
        rounding = len(found.updates) * rounding_of(
            self._scale, len(self._weights), len(found.total)
        )
        return float(found.total.norm()) <= self._weight_of(found.updates) * limit + rounding

    # An attempt

    def _attempt(self, participants: Sequence[int], needed: int) -> tuple[Opened | None, str]:
        """Ask clients the five questions of a sum; if it fails, say why."""
        self._hopeless, present = False, self.network.present()
        here = [client for client in participants if client in present]
        if self.rules.privacy is None:  # else only those may be asked who were counted
            others = [c for c in self.available() if c in present and c not in here]
            here = sorted([*here, *others[: max(0, needed - len(here))]])
        if len(here) < needed:
            return None, f"only {len(here)} of {needed} needed clients are there"
        secure = self._begun(needed)
        self._ask_all(secure, "keys", here, lambda c, reply: secure.advertise(c, reply.peers))
        if len(secure.keys) < needed:
            return None, _shortage("sent keys", secure.keys, here)
        keys = dict(secure.keys)
        self._ask_all(
            secure, "shares", keys, lambda c, reply: secure.share(c, reply.peers), lambda _: keys
        )
        if not secure.is_enough(secure.boxes):
            return None, _shortage("shared their secrets", secure.boxes, keys)
        boxes = list(secure.boxes)
        self._ask_all(
            secure, "train", boxes, lambda c, reply: self._add(secure, c, reply), secure.boxes_for
        )
        if not secure.is_enough(secure.survivors):
            return None, _shortage("sent updates", secure.survivors, boxes)
        told = dict.fromkeys(sorted(secure.survivors), "")
        self._ask_all(
            secure, "confirm", told, lambda c, reply: secure.confirm(c, reply.peers), lambda _: told
        )
        if not secure.is_confirmed:
            return None, _shortage("signed who has survived", secure.signatures, told)
        return self._unmasked(secure)

    def _begun(self, minimum: int) -> SecureSum:
        """Begin an attempt under a number that was never used before, also not before a crash."""
        if self.attempts != self._counted:  # clients may have trained since: none can recall b
            self.membership.last_accepted = frozenset()
        number, self.attempts = self.attempts, self.attempts + 1
        self._journal.count(self.attempts)
        identities, sent = self.settings.identities, self._round.sent
        smallest = self.settings.minimum
        self._scale = scale_of(self.rules, len(identities), smallest, self._new_norms)
        generation, broadcast = self.membership.generation, broadcast_digest(sent)
        terms = Terms(self.run, generation, number, self._scale, broadcast)
        return SecureSum(terms, identities, minimum, sent["z"].numel())

    def _unmasked(self, secure: SecureSum) -> tuple[Opened | None, str]:
        """Open the sum of the survivors; who does not answer is asked again."""
        survivors = {c: secure.signatures.get(c, "") for c in sorted(secure.survivors)}
        heard = set[int]()

        def take(client: int, reply: Reply) -> None:
            secure.reveal(client, reply.peers)
            heard.add(client)

        for _ in range(ATTEMPTS):
            missing = [client for client in survivors if client not in heard]
            self._ask_all(secure, "unmask", missing, take, lambda _: survivors)
            if secure.is_open:
                try:
                    ring = secure.total()
                except FedcanonError as error:
                    return None, str(error)
                total = total_of(ring, self._scale, len(self._weights))
                return Opened(dict(secure.survivors), torch.from_numpy(total)), ""
            if self._hopeless or not missing:
                break
            self.status.wait(self.settings.pause)
        return None, _shortage("revealed shares that fit", heard, survivors)

    def _ask_all(
        self,
        secure: SecureSum,
        kind: Kind,
        clients: Collection[int],
        take: Callable[[int, Reply], None],
        peers: Callable[[int], Mapping[int, str]] = lambda _: {},
    ) -> None:
        """Ask clients one of the questions; an answer that ``take`` does not accept is refused."""
        terms, taken = secure.terms, 0
        expected = "update" if kind == "train" else kind, terms.generation, terms.round
        self._exchange.forget()
        self._exchange.begin()
        messages = (self._question(terms, kind, client, dict(peers(client))) for client in clients)
        for client, reply in self._exchange.replies(messages):
            if reply.kind == "mismatch" and self.membership.is_credible(reply.generation):
                self._start_over_because_of(client, reply.generation)
            try:
                if (reply.kind, reply.generation, reply.round) != expected:
                    raise FedcanonError("from another round")
                take(client, reply)
                taken += 1
            except FedcanonError as error:
                self._blame(client, f"round {self._round.t}", str(error))
        self._hopeless = not taken and self._exchange.is_hopeless

    def _question(self, terms: Terms, kind: Kind, client: int, peers: dict[int, str]) -> Message:
        """Return a message of an attempt, whose number stands in the place of the round's."""
        if kind == "train":
            message = replace(self._message(client), round=terms.round, peers=peers)
            self._round.traffic.down(message.content)
            return message
        about = terms.run, terms.generation, terms.round
        ack = self.membership.acks.get(client)
        return Message(
            *(uuid.uuid4().hex, client, kind, *about, {}),
            ack=ack,
            scale=terms.scale,
            broadcast=terms.broadcast,
            peers=peers,
        )

    def _add(self, secure: SecureSum, client: int, reply: Reply) -> None:
        if reply.base != self.membership.acks.get(client):
            raise FedcanonError("not based on the client's last accepted update")
        secure.add(client, reply.update, reply.content)
        current = self._round
        current.traffic.up(reply.content)
        current.prox_calls += reply.prox_calls
        current.client_seconds = max(current.client_seconds, reply.seconds)
        self.status.answered(client, reply.seconds, byte_size(reply.content))

    def commit(self) -> None:
        self._new_buffers = self.buffers
        self._norms, self._counted = self._new_norms, self.attempts
        super().commit()

    # Measures, members, checkpoints

    @property
    def measures_clients(self) -> bool:
        return False

    def evaluate(self, z: Tensor, *, gradient: bool) -> Evaluation:
        raise FedcanonError(NO_MEASURES)

    def measure_with_next_round(self, z: Tensor, *, gradient: bool) -> None:
        raise FedcanonError(NO_MEASURES)

    def _may_join(self, client: int, claimed: int) -> bool:
        return client < len(self._weights) and super()._may_join(client, claimed)

    def start_over(self, z: Tensor) -> None:
        self._norms = []
        super().start_over(z)

    def use_folder(self, folder: Path) -> None:
        super().use_folder(folder)
        self._journal = Journal(folder)
        self.attempts = max(self.attempts, self._journal.attempts())

    def state(self) -> State:
        own = {"attempts": self.attempts, "counted": self._counted, "norms": self._norms}
        return {**super().state(), "secure": own}

    def load(self, state: State) -> None:
        if "secure" not in state:
            raise FedcanonError("this run had no secure sums: resume it without them.")
        super().load(state)
        own = state["secure"]
        self.attempts = max(self.attempts, own["attempts"])
        self._counted, self._norms = own["counted"], list(own["norms"])


def _shortage(done: str, who: Collection[int], asked: Collection[int]) -> str:
    return f"only {len(who)} of {len(asked)} clients have {done}"
