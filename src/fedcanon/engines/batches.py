"""Which states of clients lie in which file of the checkpoints."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedcanon.units import MIB

FULL = 4 * MIB
"""The bytes of a full batch; a state that is larger has a file of its own."""


@dataclass(eq=False)
class Batch:
    """States that are written together, into one file.

    Args:
        name: The name of the file, which no other content ever gets.
        clients: The clients whose states are in it.
        current: Of how many of them it is still the newest state.
    """

    name: str
    clients: Sequence[int]
    current: int


class Batches:
    """The batches in which the newest states of all clients are, and which states are in none yet.

    A checkpoint then writes the states that have changed. States of some older batches are written
    again with them: those of small batches, so that there are not many files, and those of batches
    of which half is outdated, so that the files need at most about twice the space of the states.
    These are at most as many as have changed, or a full batch, however many clients there are.

    Args:
        state_size: The bytes of one state.
    """

    def __init__(self, state_size: int) -> None:
        self._full = max(1, FULL // max(1, state_size))
        self._batches: list[Batch] = []  # in the order in which they were made
        self._homes: dict[int, Batch] = {}
        self._changed: set[int] = set()

    def change(self, clients: Iterable[int]) -> None:
        """Record that the states of these clients are not those in their batches any more."""
        for client in clients:
            home = self._homes.pop(client, None)
            if home is not None:
                home.current -= 1
            self._changed.add(client)

    def add_older(self, name: str, clients: Sequence[int]) -> list[int]:
        """Add a batch from a file that is older than those added before.

        Returns:
            The positions in the batch of those clients of which no newer state is known.
        """
        newest = [k for k, client in enumerate(clients) if client not in self._homes]
        batch = Batch(name, clients, len(newest))
        self._batches.insert(0, batch)
        self._homes |= dict.fromkeys((clients[k] for k in newest), batch)
        return newest

    def settle(self) -> list[Batch]:
        """Put all changed states into batches, and return all batches, the oldest first.

        The newest state of a client is in the last batch that has one.
        """
        moving = sorted(self._moving())
        for start in range(0, len(moving), self._full):
            clients = moving[start : start + self._full]
            self.change(clients)
            batch = Batch(uuid.uuid4().hex, clients, len(clients))
            self._batches.append(batch)
            self._homes |= dict.fromkeys(clients, batch)
        self._changed.clear()
        self._batches = [batch for batch in self._batches if batch.current]
        return self._batches

    def current(self, batch: Batch) -> list[int]:
        """Return the clients whose newest state is in this batch."""
        return [client for client in batch.clients if self._homes.get(client) is batch]

    def _moving(self) -> set[int]:
        """Return the clients whose states are to be written: the changed ones and some others."""
        moving = set(self._changed)
        most = len(moving) + max(len(moving), self._full)
        for batch in sorted(self._batches, key=lambda each: each.current):
            if not moving or len(moving) + batch.current > most:
                break
            is_small = batch.current <= len(moving) and 2 * len(batch.clients) <= self._full
            if is_small or 2 * batch.current <= len(batch.clients):
                moving.update(self.current(batch))
        return moving
