"""A client whose updates leave it only in secure sums."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from fedcanon.algorithms import State
from fedcanon.deployment.ledger import digest
from fedcanon.deployment.participant import Participant
from fedcanon.deployment.protocol import START, Message, Reply, parted
from fedcanon.deployment.secure.client import Member
from fedcanon.deployment.secure.ring import UPLOAD, FixedPoint, noise_of, scale_of
from fedcanon.engines.client import BUFFERS
from fedcanon.engines.work import CountedProx
from fedcanon.errors import FedcanonError


@dataclass
class SecureParticipant(Participant):
    """A participant that trusts the server with sums only, whatever the server asks.

    Args:
        member: Its part in secure sums.
    """

    member: Member = field(kw_only=True)

    def _answered(self, message: Message, reply: Reply) -> Reply:
        member = self.member
        if message.kind == "keys":
            before = self._ledger(message.run).load()
            if not member.has_begun(message) and before.after(message) is None:
                return replace(reply, kind="mismatch", generation=before.generation)
            return replace(reply, kind="keys", peers=member.advertise(message))
        if message.kind == "shares":
            return replace(reply, kind="shares", peers=member.share(message))
        if message.kind == "confirm":
            return replace(reply, kind="confirm", peers=member.confirm(message))
        if message.kind == "unmask":
            return replace(reply, kind="unmask", peers=member.reveal(message))
        if message.kind == "evaluate" or not message.keeps or parted(message.content)[1]:
            raise FedcanonError(
                f"client {self.client} answers nothing but secure sums: the server must not ask "
                "for its measures, nor for an update in the clear."
            )
        return self._train_with_ledger(message, reply)

    def _run(
        self, message: Message, state: State | None, received: State, prox: CountedProx
    ) -> tuple[State, State]:
        terms, member, clients = (
            self.member.terms(message),
            self.member,
            len(self.member.identities),
        )
        if broadcast_digest(received) != terms.broadcast:
            raise FedcanonError(
                f"client {self.client} was sent another model than the one that it has signed for."
            )
        if noise_of(self.rules):
            scale = scale_of(self.rules, clients, member.minimum, ())
            if not math.isclose(scale, terms.scale, rel_tol=1e-6):
                raise FedcanonError(
                    f"client {self.client} adds noise for the scale {scale:g}, not for the "
                    f"server's {terms.scale:g}: give all the same app/run.toml."
                )
        like = received["z"]
        ring = FixedPoint.under(
            self.rules, terms.scale, clients, member.weight, member.minimum, like
        )
        own = replace(self, rules=replace(self.rules, compressor=ring))
        upload, state = Participant._run(own, message, state, received, prox)
        return {UPLOAD: member.mask(message, upload[UPLOAD])}, state


def broadcast_digest(received: State) -> str:
    """Return the digest of a complete broadcast, which is the same for all clients."""
    sent = {name: entry for name, entry in received.items() if name not in (START, BUFFERS)}
    return digest({k: float(v) if isinstance(v, int | float) else v for k, v in sent.items()})
