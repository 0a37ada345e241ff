"""The weights of clients: all equal, or their numbers of samples."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Weights:
    """The rule for the weights of clients.

    A client could claim so many samples that it decides alone. So it may claim at most as many as
    all others together, or the operator registers the true numbers, and then no claim counts.

    Args:
        by_samples: Whether the weight of a client is its number of samples, and not 1.
        registered: The numbers of samples of clients 0, 1, …, if the operator knows them.
    """

    by_samples: bool = False
    registered: Sequence[int] = ()

    def of(self, client: int, claimed: int) -> float:
        """Return the weight of a client that claims to have so many samples."""
        if not self.by_samples:
            return 1.0
        return float(self.registered[client] if client < len(self.registered) else claimed)

    def objection(self, client: int, claimed: int, others: Collection[float]) -> str | None:
        """Return why a client cannot take part beside others with these weights, or None."""
        if len(others) < 2 or client < len(self.registered):
            return None
        if self.of(client, claimed) <= math.fsum(others):
            return None
        return (
            f"client {client} claims {claimed:,} samples, more than all others together: if that "
            "is right, write the samples of clients 0, 1, … into deployment.samples."
        )
