"""What a round has collected so far: accepted updates, on disk if they are many."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from fedcanon.algorithms import State
from fedcanon.deployment.exchange import ATTEMPTS
from fedcanon.deployment.protocol import Reply, packed
from fedcanon.deployment.states import ClientStates
from fedcanon.engines import Traffic
from fedcanon.engines.aggregation import Accumulator
from fedcanon.engines.combining import Combined, Combining
from fedcanon.engines.store import StateStore
from fedcanon.engines.summation import Vectors
from fedcanon.errors import FedcanonError


class Vault:
    """Vectors of clients until the end of a round; on disk if they need more than ``memory`` bytes.

    They are read in increasing order of clients, whatever the order in which they have come: sums
    then have the same bits as in a simulation.
    """

    def __init__(self, clients: int, memory: int) -> None:
        self._clients, self._memory = clients, memory
        self._store: StateStore | None = None

    def put(self, client: int, content: Vectors) -> None:
        """Keep the vectors of a client."""
        if self._store is None:
            self._store = StateStore(self._clients, content, self._memory)
        slot = self._store.reserve()
        self._store.write(slot, content)
        self._store.commit({client: slot})

    def get(self, client: int) -> Vectors:
        """Return the vectors of a client."""
        assert self._store is not None
        slot = self._store.slot(client)
        assert slot is not None
        return self._store.read(slot)


@dataclass
class Collection:
    """The updates of a round that have been accepted so far.

    Args:
        t: The number of the round.
        sent: The broadcast.
        uploads: The accepted uploads.
        expected: An update with the names, shapes and types that all updates must have.
        updates: The names of the accepted updates, by client.
        slots: The places of new states that the server keeps, by client.
        sizes: The largest norm of a vector in each upload and new state.
        refused: Why updates of each client were refused, once for each.
        traffic: Floats and bytes so far.
        prox_calls: The prox evaluations of the clients.
        client_seconds: How long the slowest client has worked.
    """

    t: int
    sent: State
    uploads: Vault
    expected: State | None = None
    updates: dict[int, str] = field(default_factory=dict)
    slots: dict[int, int] = field(default_factory=dict)
    sizes: dict[int, float] = field(default_factory=dict)
    refused: dict[int, list[str]] = field(default_factory=dict)
    traffic: Traffic = field(default_factory=Traffic)
    prox_calls: int = 0
    client_seconds: float = 0.0
    _encoded: State = field(default_factory=dict)

    def packed(self, content: State) -> State:
        """Return the content of a message; what all clients receive is encoded only once."""
        if not self._encoded:
            self._encoded = packed(self.sent)
        common = {k: self._encoded[k] for k, v in content.items() if v is self.sent.get(k)}
        return {**common, **packed({k: v for k, v in content.items() if k not in common})}

    def accept(self, client: int, reply: Reply, upload: Vectors, size: float) -> None:
        """Add an update with the decoded vectors ``upload``, whose largest norm is ``size``."""
        self.uploads.put(client, upload)
        self.updates[client], self.sizes[client] = reply.update, size
        self.traffic.up(reply.content)
        self.prox_calls += reply.prox_calls
        self.client_seconds = max(self.client_seconds, reply.seconds)

    def refuse(self, client: int, why: str) -> None:
        """Record that an update was refused, and remove it if it was accepted before."""
        self.updates.pop(client, None)
        self.sizes.pop(client, None)
        self.refused.setdefault(client, []).append(why)

    def require_hope(self, needed: int, members: Mapping[int, float]) -> None:
        """Raise a ``FedcanonError`` if the updates of too many clients are refused."""
        never = {c: why[-1] for c, why in self.refused.items() if len(why) >= ATTEMPTS}
        if len(members) - len(never.keys() & members.keys()) < needed:
            client, why = next(iter(never.items()))
            raise FedcanonError(
                f"round {self.t} cannot end, because it needs client {client}, whose updates are "
                f"refused ({why}): mend it, or exclude it with 'fedcanon deploy exclude'."
            )

    def combine(
        self, combining: Combining, members: Mapping[int, float], states: ClientStates
    ) -> tuple[Combined, float]:
        """Return the combined upload, and the participants' share of the weight of all members."""
        clients = sorted(self.updates)
        weights, parts = [members[c] for c in clients], Accumulator(combining.gathering)
        for client, weight in zip(clients, weights, strict=True):
            parts.push(self.uploads.get(client), weight)
        share = combining.rule.share(weights, math.fsum(members.values()))
        after = states.in_round(self.slots)
        combined = combining.combine(self.t, clients, parts.parts(), weights, after, len(members))
        return combined, share
