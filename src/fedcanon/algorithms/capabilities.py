"""What only some methods can do: classes to derive from, which engines look for."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedcanon.algorithms.base import Algorithm, State, Work
from fedcanon.compression import decoded


class Relayed(Algorithm):
    """A method with a short way for clients that keep nothing: the server may hold their states.

    The server ``ask``s with what follows from the broadcast and the client's state, the client
    ``answer``s, and the server ``settle``s what the answer means. ``local`` is the three in a row.
    """

    @abstractmethod
    def ask(self, client: State, sent: State, *, compressed: bool) -> State:
        """What the client needs; ``compressed`` says that its answer goes through a compressor."""

    @abstractmethod
    def answer(self, received: State, work: Work) -> State:
        """What the client computes."""

    @abstractmethod
    def settle(self, client: State, sent: State, answer: State) -> tuple[State, State]:
        """The client's upload and its new state, from its answer as it has arrived."""

    def local(self, client: State, received: State, work: Work) -> tuple[State, State]:
        # Where the state lies costs nothing here, so the client may have all of it.
        answer = self.answer(self.ask(client, received, compressed=True), work)
        upload, state = self.settle(client, received, decoded(answer))
        return {**upload, **answer}, state


class Recalling(Algorithm):
    """A method whose clients compute a part of the broadcast if they were in the round before."""

    recalled: ClassVar[frozenset[str]]
    """The names of these entries."""

    @abstractmethod
    def recall(self, previous: State, received: State) -> State:
        """The ``recalled`` entries, from the broadcast of the round before and the rest of this."""


@dataclass(frozen=True)
class Links:
    """Who averages whose uploads in a method without one common average.

    Node i gets Σ_j weights[i, j]·upload_j and exchanges messages with degrees[i] neighbours.
    """

    weights: Tensor
    degrees: tuple[int, ...]


class Mixed(Algorithm):
    """A decentralised method: every node averages over its neighbours.

    ``mean`` then has a row for each node, the server's state holds matrices, and of a matrix in the
    broadcast each client receives its own row.
    """

    @abstractmethod
    def mixing(self, clients: int) -> Links:
        """Who averages whose uploads."""


class Assembling(Algorithm):
    """A method of which some rounds need all clients and others do not."""

    @abstractmethod
    def everyone(self, server: State) -> bool:
        """Whether the next round must have all clients."""


class Diagnosed(Algorithm):
    """A method with numbers of its own that are worth recording."""

    @abstractmethod
    def diagnostics(self, server: State) -> dict[str, float]:
        """These numbers, by name."""
