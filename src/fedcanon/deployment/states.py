"""The states of clients, where the server keeps them."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from functools import partial

from torch import Tensor

from fedcanon.algorithms import Algorithm, State
from fedcanon.checkpoint import Part
from fedcanon.engines.store import StateStore
from fedcanon.units import GIB


class KeptStates:
    """What the clients of a generation have as their states, begun at the model ``start``.

    Every state has a name that is new whenever its content is, so that a checkpoint writes only
    those that have changed.
    """

    def __init__(
        self, algorithm: Algorithm, start: Tensor, clients: int, memory: int = GIB
    ) -> None:
        self._algorithm, self.start, self._memory = algorithm, start, memory
        self._names: dict[int, str] = {}
        self._store = self._new_store(clients)

    def of(self, client: int) -> State:
        """A client's state, valid until the next commit; that of a beginner if it has none."""
        slot = self._store.slot(client)
        if slot is None:
            return self._algorithm.client_init(self.start)
        return self._store.read(slot)

    def put(self, state: State) -> int:
        """Keep a state that does not count yet; where it lies."""
        slot = self._store.reserve()
        self._store.write(slot, state)
        return slot

    def commit(self, slots: Mapping[int, int]) -> None:
        """Let states count."""
        self._store.commit(slots)
        self._names |= {client: f"{client}-{uuid.uuid4().hex}" for client in slots}

    def release(self, slots: Mapping[int, int]) -> None:
        """Forget states that do not count."""
        self._store.release(slots)

    def restrict(self, members: Collection[int]) -> None:
        """Keep the states of members only, with room for all of them."""
        parts = {client: part for client, part in self.parts().items() if client in members}
        self.load(parts, len(members))

    def parts(self) -> dict[int, Part]:
        """The states of all clients that have one, as parts of a checkpoint."""
        return {c: Part(name, partial(self.of, c)) for c, name in self._names.items()}

    def load(self, parts: Mapping[int, Part], clients: int) -> None:
        """Let these be the states, with room for so many clients."""
        store = self._new_store(clients)
        slots = {client: store.reserve() for client in parts}
        for client, slot in slots.items():
            store.write(slot, parts[client].read())
        store.replace(slots)
        self._store = store
        self._names = {client: part.name for client, part in parts.items()}

    def _new_store(self, clients: int) -> StateStore:
        return StateStore(clients, self._algorithm.client_init(self.start), self._memory)
