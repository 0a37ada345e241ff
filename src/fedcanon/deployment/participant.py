"""The client's side of a deployment."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from fedcanon.algorithms import Recalling, State
from fedcanon.compression import decoded
from fedcanon.deployment.allowance import Allowance
from fedcanon.deployment.ledger import Ledger, Pending, digest
from fedcanon.deployment.protocol import START, Message, Presence, Reply, joined, packed, parted
from fedcanon.deployment.relay import make_relay
from fedcanon.deployment.settings import NEEDS_STATES
from fedcanon.engines import Rules
from fedcanon.engines.client import BUFFERS, client_work, encode_upload, require_finite
from fedcanon.engines.work import ClientWork, CountedProx
from fedcanon.errors import FedcanonError
from fedcanon.objectives import Objective
from fedcanon.objectives.problem import Test, no_test
from fedcanon.privacy import ClientPrivacy

_log = logging.getLogger(__name__)


@dataclass
class Participant:
    """A client, which answers the server's messages with its own data.

    Args:
        client: The number of the client.
        rules: The settings of local training.
        objective: The loss f_i on the client's training samples.
        held_out: Measures a model on samples that are not used for training.
        held_out_samples: The number of these samples.
        open_ledger: Returns the ledger of a run, in runs in which clients keep their own states. In
            other runs, an answer depends only on the message and the data.
        told: The numbers for the server's choice of step sizes; none if all are given.
        secret: The seed of random compression and clipping, which the server does not know; None
            uses the seed of the run.
        allowance: Limits how often a client that keeps its own state answers in private runs.
    """

    client: int
    rules: Rules
    objective: Objective
    held_out: Test = no_test
    held_out_samples: int = 0
    open_ledger: Callable[[str], Ledger] | None = None
    told: Callable[[], Sequence[float]] = tuple
    secret: int | None = None
    allowance: Allowance | None = None

    @property
    def presence(self) -> Presence:
        """What the server may know of the client's data; in a private run hardly anything."""
        privacy = self.rules.privacy
        if privacy is None:
            return Presence(self.objective.samples, self.held_out_samples, tuple(self.told()))
        # The number of records is public if single records are hidden, but not if clients are.
        return Presence(1 if isinstance(privacy, ClientPrivacy) else self.objective.samples)

    def answer(self, message: Message) -> Reply:
        """Return the reply to a message; a state that changes has been stored before.

        A ``FedcanonError`` becomes a reply of the kind "failure".
        """
        started = time.perf_counter()
        reply = Reply(message.id, self.client, "update", message.generation, message.round)
        try:
            if message.client != self.client:
                raise FedcanonError(f"client {message.client} is not at this node.")
            reply = self._answered(message, reply)
        except FedcanonError as error:
            reply = replace(reply, kind="failure", reason=str(error)[:1000])
        reply = replace(reply, content=packed(reply.content), seconds=time.perf_counter() - started)
        return reply if self.rules.privacy is None else _discreet(reply)

    def _answered(self, message: Message, reply: Reply) -> Reply:
        """Return the reply to a message, with its content; it may raise a ``FedcanonError``."""
        content, question = parted(message.content)
        if message.kind == "evaluate":
            return replace(reply, kind="measures", content=self._measures(decoded(content)))
        if message.kind != "train":
            raise FedcanonError(f"client {self.client} takes no part in secure sums.")
        train = self._train_with_ledger if message.keeps else self._train_stateless
        reply = train(replace(message, content=content), reply)
        if question and reply.kind == "update":
            measures = self._measures({**decoded(content), **decoded(question)})
            reply = replace(reply, content=joined(reply.content, measures))
        return reply

    def _train_stateless(self, message: Message, reply: Reply) -> Reply:
        if self.rules.records is not None:
            raise FedcanonError(NEEDS_STATES)
        received, prox = decoded(message.content), CountedProx(self.rules.penalty)
        with self._work(message.round, received, prox) as work:
            answer = make_relay(self.rules.algorithm).answer(_without_buffers(received), work)
            answer = self._encoded(answer, message.round, work)
        return replace(reply, content=answer, update=uuid.uuid4().hex, prox_calls=prox.calls)

    def _work(
        self, t: int, received: State, prox: CountedProx
    ) -> AbstractContextManager[ClientWork]:
        return client_work(self.rules, self.objective, t, self.client, received, prox, self.secret)

    def _encoded(self, upload: State, t: int, work: ClientWork) -> State:
        """Return the compressed upload together with the normalisation statistics."""
        require_finite(upload, t, self.client)
        return encode_upload(self.rules, upload, self.objective.buffers.clone(), work)

    def _train_with_ledger(self, message: Message, reply: Reply) -> Reply:
        ledger, prox = self._ledger(message.run), CountedProx(self.rules.penalty)
        before = ledger.load()
        account, recalls = before.after(message), isinstance(self.rules.algorithm, Recalling)
        if account is None:
            return replace(reply, kind="mismatch", generation=before.generation)
        if account.pending is None:
            if self.allowance is not None:
                self.allowance.spend()
            received = self._completed(message, account.previous)
            upload, state = self._run(message, account.state, received, prox)
            account = replace(
                account,
                answered=message.round,
                previous=_without_buffers(received) if recalls else {},
                pending=Pending(
                    message.round, digest(message.content), uuid.uuid4().hex, state, upload
                ),
            )
            ledger.save(account)
        sent = account.pending
        assert sent is not None
        return replace(
            reply,
            content=sent.upload,
            update=sent.update,
            base=account.base,
            prox_calls=prox.calls,
        )

    def _ledger(self, run: str) -> Ledger:
        if self.open_ledger is None:
            raise FedcanonError(
                f"client {self.client} must keep its own state, but has no folder for it: start "
                'its SuperNode with state="folder" in --node-config.'
            )
        return self.open_ledger(run)

    def _completed(self, message: Message, previous: State) -> State:
        received, algorithm = decoded(message.content), self.rules.algorithm
        if message.recalls and isinstance(algorithm, Recalling):
            received |= algorithm.recall(previous, received)
        return received

    def _run(
        self, message: Message, state: State | None, received: State, prox: CountedProx
    ) -> tuple[State, State]:
        t, algorithm = message.round, self.rules.algorithm
        start = received.pop(START, received.get("z"))
        if state is None:
            state = algorithm.client_init(start)
        with self._work(t, received, prox) as work:
            upload, state = algorithm.local(state, received, work)
            return self._encoded(upload, t, work), state

    def _measures(self, received: State) -> State:
        """Return f_i(z), ∇f_i(z) if asked for, and the measures on the held-out samples.

        Raises:
            FedcanonError: The run is private.
        """
        if self.rules.privacy is not None:
            raise FedcanonError("a private run measures nothing on the clients' data.")
        z = received["z"]
        self.objective.buffers.copy_(received[BUFFERS])
        found: State = {"held_out": self.held_out_samples}
        if received["gradient"]:
            found["loss"], found["gradient"] = self.objective.value_and_gradient(z)
        else:
            found["loss"] = self.objective.value(z)
        found |= {f"test/{name}": value for name, value in self.held_out(z).items()}
        return self.rules.compressor.beside(found)


def _discreet(reply: Reply) -> Reply:
    """Return a reply of a private run: times and reasons of failures can tell of the data."""
    if reply.reason:
        _log.warning(reply.reason)
        reply = replace(reply, reason="its own log says why")
    return replace(reply, seconds=0.0)


def _without_buffers(state: State) -> State:
    return {name: entry for name, entry in state.items() if name != BUFFERS}
