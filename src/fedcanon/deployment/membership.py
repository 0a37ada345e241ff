"""The server's record of the clients: who takes part, and whose updates were accepted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

_TABLES = ("members", "acks", "last_round", "restarts_caused", "gone", "refusals")


@dataclass
class Membership:
    """The clients of a deployment and their last accepted updates.

    A generation is a sequence of rounds in which the states of server and clients belong together.
    When a state is lost, a new generation begins, and all start again from the current model.

    Args:
        members: The weight of each client that takes part.
        max_restarts: A client that causes more new generations than this is excluded.
        generation: The number of the current generation.
        acks: The name of each client's last accepted update in this generation.
        last_accepted: The clients whose updates were accepted in the last round.
        last_round: The last round in which an update of each client was accepted.
        restarts_caused: How many new generations each client has caused.
        gone: Why each former member takes part no longer.
        refusals: How many answers of each client were refused.
    """

    members: dict[int, float]
    max_restarts: int = 3
    generation: int = 1
    acks: dict[int, str] = field(default_factory=dict)
    last_accepted: frozenset[int] = frozenset()
    last_round: dict[int, int] = field(default_factory=dict)
    restarts_caused: dict[int, int] = field(default_factory=dict)
    gone: dict[int, str] = field(default_factory=dict)
    refusals: dict[int, int] = field(default_factory=dict)

    def accept(self, t: int, updates: dict[int, str]) -> None:
        """Record that these updates, named by client, have been accepted in round ``t``."""
        self.acks |= updates
        self.last_round |= dict.fromkeys(updates, t)
        self.last_accepted = frozenset(updates)

    def record_mismatch(self, client: int, reported: int, *, forgiven: bool) -> None:
        """Record that the states of a client and of the server do not belong together.

        The next generation will be newer than the current one and the one that the client has
        ``reported``. Unless the mismatch is ``forgiven``, the client has caused a restart.
        """
        caused = self.restarts_caused.get(client, 0) + (not forgiven)
        self.restarts_caused[client] = caused
        self.generation = max(self.generation, reported)
        if caused > self.max_restarts:
            self.remove(client, "excluded: it lost its state too often")

    def record_refusal(self, client: int) -> None:
        """Record that an answer of a client was refused."""
        self.refusals[client] = self.refusals.get(client, 0) + 1

    def begin_generation(self) -> None:
        """Begin a new generation, in which no update has been accepted yet."""
        self.generation += 1
        self.acks, self.last_accepted = {}, frozenset()

    def remove(self, client: int, why: str) -> None:
        """Remove a member permanently."""
        del self.members[client]
        self.acks.pop(client, None)
        self.last_accepted -= {client}
        self.gone[client] = why

    def state(self) -> dict[str, Any]:
        """Return everything that changes, as tables with strings as keys."""
        return {
            "generation": self.generation,
            "last_accepted": sorted(self.last_accepted),
            **{name: {str(k): v for k, v in getattr(self, name).items()} for name in _TABLES},
        }

    def load(self, state: dict[str, Any]) -> None:
        """Restore a state that ``state`` returned."""
        for name in _TABLES:
            setattr(self, name, {int(k): v for k, v in state.get(name, {}).items()})
        self.generation, self.last_accepted = state["generation"], frozenset(state["last_accepted"])
