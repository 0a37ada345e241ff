"""Client states that the server keeps."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from fedcanon.algorithms import Algorithm, State
from fedcanon.checkpoint import Part
from fedcanon.engines.store import RoundStates, StateStore
from fedcanon.units import GIB


class ClientStates:
    """The states of all clients in one generation.

    Args:
        algorithm: The method, whose ``client_init`` makes the first state of a client.
        start: The model at the beginning of the generation.
        clients: The largest number of clients.
        memory: States are kept on disk if they need more than so many bytes.
    """

    def __init__(
        self, algorithm: Algorithm, start: Tensor, clients: int, memory: int = GIB
    ) -> None:
        self._algorithm, self.start, self._memory = algorithm, start, memory
        self._store = self._new_store(clients)

    def read(self, client: int) -> State:
        """Return the state of a client, initialised if it is new; valid until the next commit."""
        slot = self._store.slot(client)
        if slot is None:
            return self._algorithm.client_init(self.start)
        return self._store.read(slot)

    def put(self, state: State) -> int:
        """Store a new state, which becomes valid with ``commit``, and return its slot."""
        slot = self._store.reserve()
        self._store.write(slot, state)
        return slot

    def commit(self, slots: Mapping[int, int]) -> None:
        """Replace the states of clients by the ones in these slots."""
        self._store.commit(slots)

    def release(self, slots: Mapping[int, int]) -> None:
        """Discard states that were stored but not committed."""
        self._store.release(slots)

    def in_round(self, slots: Mapping[int, int]) -> RoundStates:
        """Return the states before and after a round whose new states are in these slots."""
        return RoundStates(self._store, slots, self._algorithm.client_init(self.start))

    def restrict(self, members: Collection[int]) -> None:
        """Discard the states of all others, and make room for all members."""
        store = self._new_store(len(members))
        store.take_over(self._store, members)
        self._store = store

    def mean(self, name: str, weights: Mapping[int, float]) -> Tensor:
        """Return Σ w_i s_i / Σ w_i, where s_i is the entry ``name`` in the state of client i."""
        total = math.fsum(weights.values())
        weighted = (weight / total * self.read(c)[name] for c, weight in weights.items())
        return sum(weighted, start=torch.zeros(()))

    def parts(self) -> dict[str, Part]:
        """Return the states of all clients that have one, as parts of a checkpoint."""
        return self._store.parts()

    def load(self, parts: Mapping[str, Part], clients: int) -> None:
        """Replace all states by those in a checkpoint, with room for ``clients`` clients."""
        store = self._new_store(clients)
        store.load(parts)
        self._store = store

    def _new_store(self, clients: int) -> StateStore:
        return StateStore(clients, self._algorithm.client_init(self.start), self._memory)
