"""The client's side of a deployment."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from fedcanon.algorithms import Recalling, State
from fedcanon.compression import decoded
from fedcanon.deployment.ledger import Ledger, Pending, digest
from fedcanon.deployment.protocol import START, Message, Presence, Reply, packed
from fedcanon.deployment.relay import relay_of
from fedcanon.engines import Rules
from fedcanon.engines.client import BUFFERS, client_work, encode_upload, require_finite
from fedcanon.engines.work import ClientWork, CountedProx
from fedcanon.errors import FedcanonError
from fedcanon.objectives import Objective
from fedcanon.objectives.problem import Test, no_test


@dataclass
class Participant:
    """Answers the server's messages with its own data.

    ``held_out`` measures a model on ``held_out_samples`` samples that are not trained on. In runs
    in which clients keep their states, ``ledger_of`` gives the books of a run; in others a client
    is a pure function of the message and its data. What alters an upload at random is drawn from
    the client's own ``secret``, which the server does not know; without one, from the run's seed.
    """

    client: int
    rules: Rules
    objective: Objective
    held_out: Test = no_test
    held_out_samples: int = 0
    ledger_of: Callable[[str], Ledger] | None = None
    secret: int | None = None

    @property
    def presence(self) -> Presence:
        """What the server is told of the client's data."""
        return Presence(self.objective.samples, self.held_out_samples)

    def answer(self, message: Message) -> Reply:
        """The reply to a message; what must survive is on disk by then."""
        started = time.perf_counter()
        reply = Reply(message.id, self.client, "update", message.generation, message.round)
        try:
            if message.client != self.client:
                raise FedcanonError(f"client {message.client} is not here, but {self.client}.")
            if message.kind == "evaluate":
                reply = replace(reply, kind="measures", content=self._measures(message))
            elif message.keeps:
                reply = self._with_books(message, reply)
            else:
                reply = self._without_state(message, reply)
        except FedcanonError as error:
            reply = replace(reply, kind="failure", reason=str(error)[:1000])
        content = packed(reply.content)
        return replace(reply, content=content, seconds=time.perf_counter() - started)

    def _without_state(self, message: Message, reply: Reply) -> Reply:
        received, prox = decoded(message.content), CountedProx(self.rules.penalty)
        with self._working(message.round, received, prox) as work:
            answer = relay_of(self.rules.algorithm).answer(_without_buffers(received), work)
            answer = self._leaving(answer, message.round, work)
        return replace(reply, content=answer, update=uuid.uuid4().hex, prox_calls=prox.calls)

    def _working(
        self, t: int, received: State, prox: CountedProx
    ) -> AbstractContextManager[ClientWork]:
        return client_work(self.rules, self.objective, t, self.client, received, prox, self.secret)

    def _leaving(self, upload: State, t: int, work: ClientWork) -> State:
        """The upload as it leaves, with the normalisation statistics."""
        require_finite(upload, t, self.client)
        return encode_upload(self.rules, upload, self.objective.buffers.clone(), work)

    def _with_books(self, message: Message, reply: Reply) -> Reply:
        if self.ledger_of is None:
            raise FedcanonError(
                f"client {self.client} is to keep its own state, but has no folder for it: start "
                'its SuperNode with state="folder" in --node-config.'
            )
        ledger, prox = self.ledger_of(message.run), CountedProx(self.rules.penalty)
        before = ledger.load()
        account, recalls = before.after(message), isinstance(self.rules.algorithm, Recalling)
        if account is None:
            return replace(reply, kind="mismatch", generation=before.generation)
        if account.pending is None:
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
        with self._working(t, received, prox) as work:
            upload, state = algorithm.local(state, received, work)
            return self._leaving(upload, t, work), state

    def _measures(self, message: Message) -> State:
        """f_i(z), ∇f_i(z) if asked for, and the measures on what is held out."""
        received = decoded(message.content)
        z = received["z"]
        self.objective.buffers.copy_(received[BUFFERS])
        found: State = {"held_out": self.held_out_samples}
        if received["gradient"]:
            found["loss"], found["gradient"] = self.objective.value_and_gradient(z)
        else:
            found["loss"] = self.objective.value(z)
        found |= {f"test/{name}": value for name, value in self.held_out(z).items()}
        return self.rules.compressor.beside(found)


def _without_buffers(state: State) -> State:
    return {name: entry for name, entry in state.items() if name != BUFFERS}
