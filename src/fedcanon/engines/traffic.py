"""Messages between server and clients, and how their size is counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from torch import Tensor

from fedcanon.algorithms import State
from fedcanon.compression import Encoded


@dataclass
class Traffic:
    """Floats and bytes sent to clients (down) and by clients (up)."""

    floats_down: int = 0
    floats_up: int = 0
    bytes_down: int = 0
    bytes_up: int = 0

    def down(self, message: State, copies: int = 1) -> None:
        """Count a message to a client, from the server or from ``copies`` neighbours."""
        floats, size = _size(message)
        self.floats_down += copies * floats
        self.bytes_down += copies * size

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.floats_down + other.floats_down,
            self.floats_up + other.floats_up,
            self.bytes_down + other.bytes_down,
            self.bytes_up + other.bytes_up,
        )

    def up(self, message: State, copies: int = 1) -> None:
        """Count a message from a client, to the server or to ``copies`` neighbours."""
        floats, size = _size(message)
        self.floats_up += copies * floats
        self.bytes_up += copies * size


def _size(message: State) -> tuple[int, int]:
    """Return the floats and bytes of the vectors in a message; single numbers are not counted."""
    floats = size = 0
    for entry in message.values():
        if isinstance(entry, Encoded):
            floats, size = floats + entry.floats, size + entry.bytes
        elif isinstance(entry, Tensor):
            floats, size = floats + entry.numel(), size + entry.numel() * entry.element_size()
    return floats, size


def byte_size(message: State) -> int:
    """Return the bytes of the vectors in a message."""
    return _size(message)[1]


def copied(message: Any) -> Any:
    """Return a copy of a message and its tensors, also of those in nested containers."""
    if isinstance(message, Tensor):
        return message.clone()
    if isinstance(message, list):
        return [copied(entry) for entry in message]
    if isinstance(message, dict):
        return {name: copied(entry) for name, entry in message.items()}
    if is_dataclass(message) and not isinstance(message, type):
        own = {f.name: copied(getattr(message, f.name)) for f in fields(message)}
        return replace(message, **own)
    return message


def vectors(message: State) -> Iterator[Tensor]:
    """Return the vectors of a message, without its numbers."""
    return (entry for entry in message.values() if isinstance(entry, Tensor))


def own_rows(message: State, client: int) -> State:
    """Return the message with every matrix replaced by the client's row of it."""
    return {
        k: v[client] if isinstance(v, Tensor) and v.ndim == 2 else v for k, v in message.items()
    }
