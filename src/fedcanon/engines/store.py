"""Storage for the states of clients between rounds."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from fedcanon.algorithms import State
from fedcanon.checkpoint import Part
from fedcanon.engines.memory import SparseFile, aligned
from fedcanon.errors import FedcanonError
from fedcanon.units import GIB, MIB

_NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64}
"""The tensor types that hold Python's numbers without loss."""


@dataclass(frozen=True)
class _Entry:
    """The place of a vector, or of a number of type ``kind``, inside a slot."""

    offset: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    kind: type

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class States(Protocol):
    """The part of a store that worker processes use."""

    def read(self, slot: int) -> State:
        """Return the state stored in a slot."""
        ...

    def write(self, slot: int, state: State) -> None:
        """Store a state in a slot."""
        ...


class StateStore:
    """The states of all clients that have ever taken part, in a mapped file of equal slots.

    Forked processes, and processes to which the store is sent, read and write the same memory. A
    new state is written to a free slot. It replaces the client's old state only with ``commit``, so
    that a round that fails changes nothing.

    Args:
        clients: The largest number of clients.
        template: A state with the names, shapes and types that all states have.
        limit: Bytes. If the states of all clients need more, the file is on disk, and a process
            keeps at most about so many bytes of it in memory.
    """

    def __init__(self, clients: int, template: State, limit: int = GIB) -> None:
        self.slots: dict[int, int] = {}  # of every client that has taken part
        self._names: dict[int, str] = {}  # of their states; a state that changes gets a new one
        self._free: list[int] = []
        self._used = 0
        self._entries, self._slot_size = _layout(template)
        self._limit, self._touched = limit, 0
        self._on_disk = clients * self._slot_size > limit
        # In a round, participants have an old slot and a new one.
        self._file = SparseFile(2 * clients * self._slot_size, on_disk=self._on_disk)

    @property
    def state_size(self) -> int:
        """The bytes of one state."""
        return self._slot_size

    def __len__(self) -> int:
        return len(self.slots)

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self.slots))

    def slot(self, client: int) -> int | None:
        """Return the slot with the client's state, or None if it has never taken part."""
        return self.slots.get(client)

    def reserve(self) -> int:
        """Return a free slot for a new state.

        Raises:
            FedcanonError: There is not enough memory or space on the disk.
        """
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
        """Assign reserved slots to clients; the clients' old slots become free."""
        self._free.extend(self.slots[client] for client in slots if client in self.slots)
        self.slots.update(slots)
        self._names |= _new_names(slots)

    def replace_all(self, states: Mapping[int, State | Part]) -> None:
        """Replace all states by these; a part of a checkpoint keeps its name."""
        slots = {client: self.reserve() for client in states}
        for client, state in states.items():
            self.write(slots[client], state.read() if isinstance(state, Part) else state)
        self._free.extend(self.slots.values())
        self.slots = slots
        self._names = _new_names(slots) | {
            client: state.name for client, state in states.items() if isinstance(state, Part)
        }

    def parts(self) -> dict[int, Part]:
        """Return all states as parts of a checkpoint, which writes only those that have changed."""
        return {c: Part(self._names[c], partial(self.read, slot)) for c, slot in self.slots.items()}

    def release(self, slots: Mapping[int, int]) -> None:
        """Free reserved slots that are not needed."""
        self._free.extend(slots.values())

    def read(self, slot: int) -> State:
        """Return the state in a slot, as views that are valid until the slot is written again."""
        self._touch()
        state: State = {}
        for name, entry in self._entries.items():
            view = self._view(slot, entry)
            state[name] = view if entry.kind is Tensor else entry.kind(view.item())
        return state

    def write(self, slot: int, state: State) -> None:
        """Store a state in a slot.

        Raises:
            FedcanonError: Its entries or shapes are not those of ``client_init``.
        """
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
            self._file.drop_pages()
            self._touched = 0


@dataclass(frozen=True)
class RoundStates:
    """The states of clients before a round and after it, while it is not committed.

    Args:
        store: The committed states.
        slots: The slots of new states, by participant.
        first: The state of a client that has none yet.
    """

    store: StateStore
    slots: Mapping[int, int]
    first: State

    def __iter__(self) -> Iterator[int]:
        """Return the clients that have a state after the round, in increasing order."""
        return iter(sorted(self.store.slots.keys() | self.slots.keys()))

    def before(self, client: int) -> State:
        """Return the state of a client before the round."""
        slot = self.store.slot(client)
        return self.first if slot is None else self.store.read(slot)

    def after(self, client: int) -> State:
        """Return the state of a client after the round."""
        return self.store.read(self.slots[client]) if client in self.slots else self.before(client)


def _new_names(clients: Iterable[int]) -> dict[int, str]:
    return {client: f"{client}-{uuid.uuid4().hex}" for client in clients}


def _layout(template: State) -> tuple[dict[str, _Entry], int]:
    """Return the place of every entry in a slot, and the size of a slot."""
    entries, offset = dict[str, _Entry](), 0
    for name, value in template.items():
        if isinstance(value, Tensor):
            entry = _Entry(offset, tuple(value.shape), value.dtype, Tensor)
        else:
            entry = _Entry(offset, (), _NUMBERS[type(value)], type(value))
        entries[name] = entry
        offset += aligned(entry.size)
    return entries, offset
