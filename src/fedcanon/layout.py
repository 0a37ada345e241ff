"""Names and shapes of the pieces of a flat vector."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod

from torch import Tensor


@dataclass(frozen=True)
class Slot:
    """One named tensor inside a flat vector: entries ``offset … offset + size``."""

    name: str
    shape: tuple[int, ...]
    offset: int

    @cached_property
    def size(self) -> int:
        """Number of entries."""
        return prod(self.shape)

    def view(self, vector: Tensor) -> Tensor:
        """The slot's part of ``vector`` in the slot's shape, sharing memory."""
        return vector[self.offset : self.offset + self.size].view(self.shape)


@dataclass(frozen=True)
class Layout:
    """How named tensors lie one after the other in one flat vector."""

    slots: tuple[Slot, ...]

    @classmethod
    def of(cls, shapes: Iterable[tuple[str, tuple[int, ...]]]) -> Layout:
        """Lay out ``(name, shape)`` pairs in order, without gaps."""
        slots: list[Slot] = []
        offset = 0
        for name, shape in shapes:
            slot = Slot(name, tuple(shape), offset)
            slots.append(slot)
            offset += slot.size
        return cls(tuple(slots))

    @cached_property
    def size(self) -> int:
        """Length d of the flat vector."""
        return sum(slot.size for slot in self.slots)

    def __iter__(self) -> Iterator[Slot]:
        return iter(self.slots)

    def split(self, vector: Tensor) -> list[Tensor]:
        """Every slot of ``vector`` in order, sharing memory."""
        return [slot.view(vector) for slot in self.slots]

    def views(self, vector: Tensor) -> dict[str, Tensor]:
        """Every slot of ``vector`` by name, sharing memory."""
        return {slot.name: slot.view(vector) for slot in self.slots}
