"""Where the states of clients live between rounds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fedcanon.algorithms import State
from fedcanon.engines.memory import SparseFile, aligned
from fedcanon.errors import FedcanonError
from fedcanon.units import GIB, MIB

_NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64}
"""As Python has them."""


@dataclass(frozen=True)
class _Entry:
    """Where a vector, or a number of this ``kind``, lies in a slot."""

    offset: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    kind: type

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class States(Protocol):
    """What a process that works for clients needs of a store."""

    def read(self, slot: int) -> State:
        """The state in a slot."""
        ...

    def write(self, slot: int, state: State) -> None:
        """Put a state into a slot."""
        ...


class StateStore:
    """The states of all clients that have ever taken part, in one mapped file of equal slots.

    Processes that are forked, or to which the store is sent, see the same memory: a state is read
    where it lies. A new state goes to a free slot and counts once the slot is the client's
    (``commit``), so that a round that fails changes nothing.

    The file is in memory while the states of all clients would fit into ``limit`` bytes, and
    otherwise on disk, of which no process keeps more than about ``limit`` bytes in memory.
    """

    def __init__(self, clients: int, template: State, limit: int = GIB) -> None:
        self.slots: dict[int, int] = {}  # of every client that has taken part
        self._free: list[int] = []
        self._used = 0
        self._entries, self._slot_size = _layout(template)
        self._limit, self._touched = limit, 0
        self._on_disk = clients * self._slot_size > limit
        # In a round, participants have an old slot and a new one.
        self._file = SparseFile(2 * clients * self._slot_size, on_disk=self._on_disk)

    def __len__(self) -> int:
        return len(self.slots)

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self.slots))

    def slot(self, client: int) -> int | None:
        """Where the client's state is; None for one that has never taken part."""
        return self.slots.get(client)

    def reserve(self) -> int:
        """A slot for a new state."""
        if self._free:
            return self._free.pop()
        slot = self._used
        try:
            self._file.reserve(slot * self._slot_size, self._slot_size)
        except OSError as error:
            place, remedy = ("memory", "lower engine.state_memory, which leaves them on disk")
            if self._on_disk:
                place, remedy = ("disk", "free some, or name a larger one in TMPDIR")
            raise FedcanonError(
                f"there is no {place} left for the states of clients, of which {slot:,} take "
                f"{self._slot_size / MIB:,.1f} MiB each ({error.strerror}): {remedy}."
            ) from None
        self._used += 1
        return slot

    def commit(self, slots: Mapping[int, int]) -> None:
        """Make reserved slots the clients' own; their old ones are free again."""
        self._free.extend(self.slots[client] for client in slots if client in self.slots)
        self.slots.update(slots)

    def replace(self, slots: Mapping[int, int]) -> None:
        """Make reserved slots the only ones that count."""
        self._free.extend(self.slots.values())
        self.slots = dict(slots)

    def release(self, slots: Mapping[int, int]) -> None:
        """Give reserved slots back."""
        self._free.extend(slots.values())

    def read(self, slot: int) -> State:
        """The state in a slot, as views that hold until the slot is written again."""
        self._touch()
        state: State = {}
        for name, entry in self._entries.items():
            view = self._view(slot, entry)
            state[name] = view if entry.kind is Tensor else entry.kind(view.item())
        return state

    def write(self, slot: int, state: State) -> None:
        """Put a state into a slot."""
        self._touch()
        if state.keys() != self._entries.keys():
            raise FedcanonError(
                f"a client's state has the entries {sorted(state)} after a round, but "
                f"client_init gave it {sorted(self._entries)}: they must be the same."
            )
        for name, entry in self._entries.items():
            value = state[name]
            if not isinstance(value, Tensor):
                value = torch.tensor(value, dtype=entry.dtype)
            if value.shape != entry.shape:
                raise FedcanonError(
                    f"the entry '{name}' of a client's state has the shape {tuple(value.shape)} "
                    f"after a round, but client_init gave it {entry.shape}."
                )
            self._view(slot, entry).copy_(value)

    def _view(self, slot: int, entry: _Entry) -> Tensor:
        return self._file.view(slot * self._slot_size + entry.offset, entry.shape, entry.dtype)

    def _touch(self) -> None:
        self._touched += self._slot_size
        if self._on_disk and self._touched > self._limit:
            self._file.let_go()
            self._touched = 0


def _layout(template: State) -> tuple[dict[str, _Entry], int]:
    """Entries one after the other, and the size of them all."""
    entries, offset = dict[str, _Entry](), 0
    for name, value in template.items():
        if isinstance(value, Tensor):
            entry = _Entry(offset, tuple(value.shape), value.dtype, Tensor)
        else:
            entry = _Entry(offset, (), _NUMBERS[type(value)], type(value))
        entries[name] = entry
        offset += aligned(entry.size)
    return entries, offset
