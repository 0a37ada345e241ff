"""Storage for the states of clients between rounds."""

from __future__ import annotations

import errno
import math
import os
import shutil
import tempfile
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from fedcanon.algorithms import State
from fedcanon.checkpoint import Part
from fedcanon.engines.batches import Batch, Batches
from fedcanon.engines.memory import SparseFile, aligned
from fedcanon.errors import FedcanonError
from fedcanon.units import GIB, MIB

_OWNERS = "clients"
"""The name of the clients' numbers in a part of a checkpoint, beside the entries of states."""

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
        self._free: list[int] = []
        self._used = 0
        self._entries, self._slot_size = _layout(template)
        self._batches = Batches(self._slot_size)
        self._limit, self._touched = limit, 0
        self._on_disk = clients * self._slot_size > limit
        size = 2 * clients * self._slot_size  # in a round, participants have an old and a new slot
        if self._on_disk:  # no system maps a file that is much larger than any disk
            size = min(size, _free_bytes() // self._slot_size * self._slot_size)
        self._file = SparseFile(size, on_disk=self._on_disk)

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
            if (slot + 1) * self._slot_size > self._file.size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
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

    def shortage(self, states: int) -> str | None:
        """Return a sentence if the disk has no room for so many states, and None if it has."""
        needed, free = states * self._slot_size, _free_bytes()
        if not self._on_disk or needed <= free:
            return None
        return (
            f"the states of {states:,} clients take {needed / GIB:,.1f} GiB, "
            f"{self._slot_size / MIB:,.1f} MiB each, but the disk for temporary files has only "
            f"{free / GIB:,.1f} GiB: name a larger one in TMPDIR, or take fewer participants, a "
            "smaller model, or a method whose clients keep nothing, such as fedavg."
        )

    def commit(self, slots: Mapping[int, int]) -> None:
        """Assign reserved slots to clients; the clients' old slots become free."""
        self._free.extend(self.slots[client] for client in slots if client in self.slots)
        self.slots.update(slots)
        self._batches.change(slots)

    def replace_all(self, states: Mapping[int, State]) -> None:
        """Replace all states by these."""
        slots = {client: self.reserve() for client in states}
        for client, state in states.items():
            self.write(slots[client], state)
        batches = Batches(self._slot_size)
        batches.change(slots)
        self._replace(slots, batches)

    def _replace(self, slots: dict[int, int], batches: Batches) -> None:
        self._free.extend(self.slots.values())
        self.slots, self._batches = slots, batches

    def take_over(self, other: StateStore, clients: Container[int]) -> None:
        """Replace all states by those that another store has of some clients."""
        kept = {client: slot for client, slot in other.slots.items() if client in clients}
        self.replace_all({client: other.read(slot) for client, slot in kept.items()})
        if len(kept) == len(other):
            self._batches = other._batches

    def parts(self) -> dict[str, Part]:
        """Return all states as parts of a checkpoint, which writes only those that have changed.

        Their keys are their names. If there are several states of a client, the last one counts.
        """
        if not self._slot_size:
            return {}
        batches = self._batches.settle()
        return {b.name: Part(b.name, partial(self._content, self._batches, b)) for b in batches}

    def _content(self, batches: Batches, batch: Batch) -> State:
        """Return the clients of a batch and, for every entry of their states, a row for each."""
        clients = batches.current(batch)
        slots = [self.slots[client] for client in clients]
        rows = {name: self._rows(slots, entry) for name, entry in self._entries.items()}
        self._touch(len(slots))
        return {_OWNERS: torch.tensor(clients), "states": rows}

    def load(self, parts: Mapping[str, Part]) -> None:
        """Replace all states by those in the parts of a checkpoint, as ``parts`` returned them.

        Raises:
            ValueError: The parts have states of another kind.
        """
        slots, batches = dict[int, int](), Batches(self._slot_size)
        for name, part in reversed(list(parts.items())):
            clients, rows = self._checked(part.read())
            newest = batches.add_older(name, clients)
            slots |= {clients[k]: self.reserve() for k in newest}
            places = [slots[clients[k]] for k in newest]
            for entry_name, entry in self._entries.items():
                self._write_rows(places, entry, rows[entry_name][newest])
            self._touch(len(places))
        self._replace(slots, batches)

    def _checked(self, content: State) -> tuple[list[int], State]:
        """Return the clients and rows of a part if they fit this store."""
        owners, rows = content.get(_OWNERS), content.get("states")
        if not (isinstance(owners, Tensor) and owners.dtype == torch.int64 and owners.ndim == 1):
            raise ValueError("a part of it has no clients")
        clients: list[int] = owners.tolist()
        if len(set(clients)) < len(clients):
            raise ValueError("a part of it has a client twice")
        if not (isinstance(rows, dict) and rows.keys() == self._entries.keys()):
            raise ValueError("it has other states of clients: perhaps it is of another method")
        for name, entry in self._entries.items():
            found, shape = rows[name], (len(clients), *entry.shape)
            fits = isinstance(found, Tensor) and found.shape == shape and found.dtype == entry.dtype
            if not fits:
                raise ValueError(f"the entry '{name}' of its clients' states is of another model")
        return clients, rows

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

    def _matrix(self, entry: _Entry) -> Tensor:
        """Return an entry of all slots, with a row for each."""
        bytes_each = entry.dtype.itemsize
        shape = (self._file.size // self._slot_size, self._slot_size // bytes_each)
        first = entry.offset // bytes_each
        whole = self._file.view(0, shape, entry.dtype)
        return whole[:, first : first + math.prod(entry.shape)]

    def _rows(self, slots: Sequence[int], entry: _Entry) -> Tensor:
        """Return an entry of some slots, with a row for each; a single one is not copied."""
        if len(slots) == 1:
            return self._view(slots[0], entry)[None]
        return self._matrix(entry)[torch.tensor(slots)].view(len(slots), *entry.shape)

    def _write_rows(self, slots: Sequence[int], entry: _Entry, rows: Tensor) -> None:
        if entry.size and slots:
            self._matrix(entry)[torch.tensor(slots)] = rows.cpu().reshape(len(slots), -1)

    def _touch(self, slots: int = 1) -> None:
        self._touched += slots * self._slot_size
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


def _free_bytes() -> int:
    """Return how much can be written to the folder for temporary files."""
    return shutil.disk_usage(tempfile.gettempdir()).free


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
