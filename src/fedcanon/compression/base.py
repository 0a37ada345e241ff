"""The contract of a compressor C."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor


@dataclass(frozen=True)
class Encoded:
    """What travels of a vector, and the vector that the receiver makes of it.

    Client and server both move by ``vector``, never by what was there before it was encoded. Only
    noise for privacy is an exception: it travels, but the client moves by ``kept``, without it.
    """

    parts: dict[str, Tensor]
    vector: Tensor
    kept: Tensor | None = None

    @property
    def floats(self) -> int:
        """The number of floating-point entries that travel."""
        return sum(part.numel() for part in self.parts.values() if part.is_floating_point())

    @property
    def bytes(self) -> int:
        """The number of bytes that travel, names and framing apart."""
        return sum(part.numel() * part.element_size() for part in self.parts.values())


def decoded(message: dict[str, Any]) -> dict[str, Any]:
    """The message as its receiver sees it: with the vectors that it makes of what has travelled."""
    return {k: v.vector if isinstance(v, Encoded) else v for k, v in message.items()}


def kept(message: dict[str, Any]) -> dict[str, Any]:
    """The message as its sender counts it: with the vectors by which its own state moves."""
    own = {k: v.kept for k, v in message.items() if isinstance(v, Encoded) and v.kept is not None}
    return {**decoded(message), **own}


class Compressor(ABC):
    """A map C that makes a vector u cheaper to send: a contraction, with some δ in (0, 1].

        E‖C(u) − u‖² ≤ (1 − δ)‖u‖²

    This, and not unbiasedness, is what FedCanon+ needs: v_i ← v_i + C(m − v_i) then comes nearer
    to m in every round, so the error dies out with u and leaves no floor. δ = 1 is the identity.

    C works on a 1-D tensor of 32- or 64-bit floats, of any length from 1 on, on the CPU, and leaves
    it as it is; the parts may share its memory. Compressors are frozen dataclasses: their fields
    are their parameters.
    """

    @abstractmethod
    def encode(self, u: Tensor, rng: np.random.Generator) -> dict[str, Tensor]:
        """The parts of C(u) that travel; ``rng`` gives the draws of a random C."""

    @abstractmethod
    def decode(self, parts: dict[str, Tensor], size: int) -> Tensor:
        """C(u), of that many entries and in the precision of u, from the parts alone."""

    @abstractmethod
    def contraction(self, size: int) -> float:
        """The δ that holds for every u with that many entries."""

    @property
    def draws(self) -> bool:
        """Whether ``encode`` uses ``rng``; where it says no, any use of ``rng`` is an error."""
        return True

    @property
    def norm_bound(self) -> float:
        """The largest ‖C(u)‖ of any u; a server refuses what exceeds it."""
        return math.inf

    def beside(self, message: dict[str, Any]) -> dict[str, Any]:
        """What else leaves a client: its normalisation statistics, or its measures of a model.

        Compressors leave it as it is. What protects a client may alter or withhold it.
        """
        return message

    def __call__(self, u: Tensor, rng: np.random.Generator) -> Encoded:
        """The parts that travel, and C(u) as it is decoded from them."""
        parts = self.encode(u, rng)
        return Encoded(parts, self.decode(parts, u.numel()))


@dataclass(frozen=True)
class Identity(Compressor):
    """C(u) = u, δ = 1: the vector itself travels."""

    @property
    def draws(self) -> bool:
        return False

    def encode(self, u: Tensor, rng: np.random.Generator) -> dict[str, Tensor]:
        return {"values": u}

    def decode(self, parts: dict[str, Tensor], size: int) -> Tensor:
        return parts["values"]

    def contraction(self, size: int) -> float:
        return 1.0


@dataclass(frozen=True)
class Chain(Compressor):
    """C = C_n ∘ … ∘ C_1: one compressor after the other, such as a clip before a quantisation.

    What travels is what the last one sends. With δ_1 and δ_2 of two of them,
    ‖C_2(C_1(u)) − u‖ ≤ (√(1 − δ_1) + √(1 − δ_2)·(1 + √(1 − δ_1)))·‖u‖, which may be no contraction:
    δ is then 0.
    """

    steps: tuple[Compressor, ...]

    @property
    def draws(self) -> bool:
        return any(step.draws for step in self.steps)

    def encode(self, u: Tensor, rng: np.random.Generator) -> dict[str, Tensor]:
        *first, last = self.steps
        for step in first:
            u = step(u, rng).vector
        return last.encode(u, rng)

    def decode(self, parts: dict[str, Tensor], size: int) -> Tensor:
        return self.steps[-1].decode(parts, size)

    def contraction(self, size: int) -> float:
        error = 0.0
        for step in self.steps:
            error += math.sqrt(1 - step.contraction(size)) * (1 + error)
        return max(0.0, 1 - error**2)

    @property
    def norm_bound(self) -> float:
        return self.steps[-1].norm_bound

    def beside(self, message: dict[str, Any]) -> dict[str, Any]:
        for step in self.steps:
            message = step.beside(message)
        return message
