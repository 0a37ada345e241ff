"""The server's books: who takes part, what has counted, and who has gone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Books:
    """Members by weight, and the name of each one's last update that counted in this generation.

    A generation ends when the states of server and clients do not belong together any more: all
    begin again from the current model. A client that causes more than ``most_restarts`` of that is
    excluded. ``gone`` tells which clients are no members any more, and why; ``last_round`` in which
    round each client counted last.
    """

    members: dict[int, float]
    most_restarts: int = 3
    generation: int = 1
    acks: dict[int, str] = field(default_factory=dict)
    last_counted: frozenset[int] = frozenset()
    last_round: dict[int, int] = field(default_factory=dict)
    restarts_caused: Counter[int] = field(default_factory=Counter)
    gone: dict[int, str] = field(default_factory=dict)

    def count(self, t: int, updates: dict[int, str]) -> None:
        """Let a round count."""
        self.acks |= updates
        self.last_round |= dict.fromkeys(updates, t)
        self.last_counted = frozenset(updates)

    def blame(self, client: int, reported: int) -> None:
        """A client and the server do not belong together: the next generation is newer than both.

        A client that knows a newer generation is not to blame: it is the server that was put back.
        """
        self.restarts_caused[client] += reported <= self.generation
        self.generation = max(self.generation, reported)
        if self.restarts_caused[client] > self.most_restarts:
            self.remove(client, "excluded: it lost its state too often")

    def begin_generation(self) -> None:
        """No update has counted yet."""
        self.generation += 1
        self.acks, self.last_counted = {}, frozenset()

    def remove(self, client: int, why: str) -> None:
        """A client leaves for good."""
        del self.members[client]
        self.acks.pop(client, None)
        self.last_counted -= {client}
        self.gone[client] = why

    def state(self) -> dict[str, Any]:
        """All of it as tables with strings as keys."""
        tables = ("members", "acks", "last_round", "restarts_caused", "gone")
        return {
            "generation": self.generation,
            "last_counted": sorted(self.last_counted),
            **{name: {str(k): v for k, v in getattr(self, name).items()} for name in tables},
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        for name in ("members", "acks", "last_round", "gone"):
            setattr(self, name, {int(k): v for k, v in state[name].items()})
        self.generation, self.last_counted = state["generation"], frozenset(state["last_counted"])
        self.restarts_caused = Counter({int(k): v for k, v in state["restarts_caused"].items()})
