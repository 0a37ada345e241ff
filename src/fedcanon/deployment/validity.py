"""Checks on replies of clients, which are not trusted."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median

import torch
from torch import Tensor

from fedcanon.algorithms import State
from fedcanon.compression import decoded
from fedcanon.engines.traffic import vectors


class Fault(StrEnum):
    """What is wrong with an answer: names or shapes, numbers that cannot be, or its norm."""

    MALFORMED = "malformed"
    NOT_FINITE = "not finite"
    TOO_LARGE = "too large"
    OUT_OF_RANGE = "out of range"


def fault(content: State, expected: State) -> Fault | None:
    """Return what is wrong with an answer, or None.

    Names, shapes and types must be those of ``expected``, and all numbers must be finite.
    """
    if _shapes(content) != _shapes(expected):
        return Fault.MALFORMED
    found = decoded(content)
    numbers = [entry for entry in found.values() if not isinstance(entry, Tensor)]
    finite = all(bool(vector.isfinite().all()) for vector in vectors(found))
    return None if finite and all(map(is_finite, numbers)) else Fault.NOT_FINITE


def is_number(value: object) -> bool:
    """Tell whether an entry of a message is a number."""
    return isinstance(value, int | float)


def is_finite(value: float) -> bool:
    """Tell whether a number is finite as a float."""
    return abs(value) <= sys.float_info.max  # math.isfinite fails for integers beyond this


def largest_norm(*contents: State) -> float:
    """Return the largest norm of a vector in some messages or states."""
    found = (vector for content in contents for vector in vectors(content))
    norms = (float(torch.linalg.vector_norm(v, dtype=torch.float64)) for v in found)
    return max(norms, default=0.0)


@dataclass
class Usual:
    """Finds clients whose numbers are far from what is usual: the median of all clients' largest.

    Of each client the largest number so far counts, because updates and losses fall during a run,
    with some clients earlier than with others. With fewer than three clients nobody is odd.

    Args:
        factor: A number of more than so many times what is usual is odd.
        largest: The largest number of each client so far.
    """

    factor: float
    largest: dict[int, float] = field(default_factory=dict)

    @property
    def median(self) -> float:
        """What is usual so far."""
        return median(self.largest.values()) if self.largest else 0.0

    def odd(self, numbers: Mapping[int, float]) -> list[int]:
        """Return the clients with an odd number; the numbers of the others are remembered."""
        known = {c: max(number, self.largest.get(c, 0.0)) for c, number in numbers.items()}
        together = {**self.largest, **known}
        limit = self.factor * median(together.values()) if len(together) >= 3 else 0.0
        odd = [client for client, number in numbers.items() if 0 < limit < number]
        self.largest |= {client: size for client, size in known.items() if client not in odd}
        return odd

    def state(self) -> dict[str, float]:
        """Return what is remembered, with texts as keys."""
        return {str(client): size for client, size in self.largest.items()}

    def load(self, state: Mapping[str, float]) -> None:
        """Restore what ``state`` returned."""
        self.largest = {int(client): size for client, size in state.items()}


def _shapes(content: State) -> dict[str, object]:
    """Return the shape and type of every vector, and for other entries whether it is a number."""
    return {
        name: (tuple(entry.shape), entry.dtype) if isinstance(entry, Tensor) else is_number(entry)
        for name, entry in decoded(content).items()
    }
