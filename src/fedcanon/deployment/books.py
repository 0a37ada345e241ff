"""The server's books: who takes part, what has counted, and who has gone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Books:
    """Members by weight, and the name of each one's last update that counted in this epoch.

    An epoch ends when the states of server and clients do not belong together any more. A client
    that causes more than ``most_epochs`` of them is excluded. ``gone`` tells of clients that are no
    members any more, and why; ``last_round`` in which round a client counted last.
    """

    members: dict[int, float]
    most_epochs: int = 3
    epoch: int = 1
    acks: dict[int, str] = field(default_factory=dict)
    last_counted: frozenset[int] = frozenset()
    last_round: dict[int, int] = field(default_factory=dict)
    epochs_caused: Counter[int] = field(default_factory=Counter)
    gone: dict[int, str] = field(default_factory=dict)

    def count(self, t: int, updates: dict[int, str]) -> None:
        """Let a round count."""
        self.acks |= updates
        self.last_round |= dict.fromkeys(updates, t)
        self.last_counted = frozenset(updates)

    def blame(self, client: int, reported: int) -> None:
        """A client and the server do not belong together: the next epoch is newer than both.

        A client that knows a newer epoch is not to blame: it is the server that was put back.
        """
        self.epochs_caused[client] += reported <= self.epoch
        self.epoch = max(self.epoch, reported)
        if self.epochs_caused[client] > self.most_epochs:
            self.remove(client, "excluded: it lost its state too often")

    def begin_epoch(self) -> None:
        """No update has counted yet."""
        self.epoch += 1
        self.acks, self.last_counted = {}, frozenset()

    def remove(self, client: int, why: str) -> None:
        """A client leaves for good."""
        del self.members[client]
        self.acks.pop(client, None)
        self.last_counted -= {client}
        self.gone[client] = why

    def state(self) -> dict[str, Any]:
        """All of it as tables with strings as keys."""
        tables = ("members", "acks", "last_round", "epochs_caused", "gone")
        return {
            "epoch": self.epoch,
            "last_counted": sorted(self.last_counted),
            **{name: {str(k): v for k, v in getattr(self, name).items()} for name in tables},
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        for name in ("members", "acks", "last_round", "gone"):
            setattr(self, name, {int(k): v for k, v in state[name].items()})
        self.epoch, self.last_counted = state["epoch"], frozenset(state["last_counted"])
        self.epochs_caused = Counter({int(k): v for k, v in state["epochs_caused"].items()})
