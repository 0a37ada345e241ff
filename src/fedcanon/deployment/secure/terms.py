"""What all clients of a secure sum must agree on."""

from __future__ import annotations

from dataclasses import dataclass

from fedcanon.deployment.protocol import Message

_PROTOCOL = "fedcanon secure sum 1"


@dataclass(frozen=True)
class Terms:
    """The occasion of a secure sum, and what the server has told every client about it.

    Args:
        run: The name of the run.
        generation: The generation of the round.
        round: The number of this attempt, which no other attempt of the run has.
        scale: The largest entry of an update in fixed point.
        broadcast: The digest of what clients receive before they train.
    """

    run: str
    generation: int
    round: int
    scale: float
    broadcast: str

    @classmethod
    def of(cls, message: Message) -> Terms:
        """Return the terms that a message states."""
        return cls(message.run, message.generation, message.round, message.scale, message.broadcast)

    def bind(self, *purpose: object) -> bytes:
        """Return bytes that name these terms and a purpose, different for any two of them.

        What is signed, sealed or derived with them is worth nothing on another occasion.
        """
        terms = (self.run, self.generation, self.round, self.scale.hex(), self.broadcast)
        return "|".join(map(str, (_PROTOCOL, *terms, *purpose))).encode()
