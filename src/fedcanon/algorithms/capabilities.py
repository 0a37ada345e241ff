"""Abilities that only some methods have: a method derives from these classes to offer them."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedcanon.algorithms.base import Algorithm, State, Work
from fedcanon.compression import kept


class Relayed(Algorithm):
    """A method that needs few vectors per round if the server keeps the clients' states.

    ``local`` is divided into three steps: the server's ``ask``, the client's ``answer`` and the
    server's ``settle``. A client without storage then need not receive and return its whole state.
    """

    @abstractmethod
    def ask(self, client: State, sent: State, *, compressed: bool) -> State:
        """Return the message to a client, from its state and the broadcast.

        ``compressed`` tells that the answer will be compressed.
        """

    @abstractmethod
    def answer(self, received: State, work: Work) -> State:
        """Return the client's answer to the message."""

    @abstractmethod
    def settle(self, client: State, sent: State, answer: State) -> tuple[State, State]:
        """Return the client's upload and its new state, from its answer after decompression."""

    def local(self, client: State, received: State, work: Work) -> tuple[State, State]:
        # The message does not travel here, so that it may as well contain everything.
        answer = self.answer(self.ask(client, received, compressed=True), work)
        upload, state = self.settle(client, received, kept(answer))
        return {**upload, **answer}, state


class Recalling(Algorithm):
    """A method whose clients can compute a part of the broadcast instead of receiving it.

    A client can do this if it took part in the round before.
    """

    recalled: ClassVar[frozenset[str]]
    """The names of the entries that clients can compute."""

    @abstractmethod
    def recall(self, previous: State, received: State) -> State:
        """Return the ``recalled`` entries.

        Args:
            previous: The complete broadcast of the round before.
            received: The other entries of this round's broadcast.
        """


class Cached(Algorithm):
    """A method whose uploads say how a vector of the client's state has moved.

    That vector is the only one in ``averages``. A server that keeps the clients' states can then
    combine those of all clients by another rule than the mean.
    """

    @abstractmethod
    def moved(self, old: Tensor, new: Tensor) -> State:
        """Return the upload that moves the vector from ``old`` to ``new``."""


@dataclass(frozen=True)
class Links:
    """The communication links between the nodes of a decentralised method.

    Node i gets Σ_j weights[i, j]·upload_j and exchanges messages with degrees[i] neighbours.
    """

    weights: Tensor
    degrees: tuple[int, ...]


class Mixed(Algorithm):
    """A decentralised method: every node averages over its neighbours.

    The ``mean`` in ``aggregate`` has a row for each node, the server's state consists of matrices,
    and each client receives its own row of every matrix in the broadcast.
    """

    @abstractmethod
    def mixing(self, clients: int) -> Links:
        """Return the links between this number of nodes."""


class Assembling(Algorithm):
    """A method that needs all clients in some rounds, but not in others."""

    @abstractmethod
    def everyone(self, server: State) -> bool:
        """Tell whether the next round needs all clients."""


class SecondOrder(Algorithm):
    """A method that needs second derivatives of the clients' losses, for linear models.

    Its clients may call ``work.expansion``, whose result has 1 + d + d(d + 1)/2 entries.
    """

    max_floats: int
    """Runs in which an upload would have more floats are refused."""


class Diagnosed(Algorithm):
    """A method with additional numbers that are recorded with the measures of a run."""

    @abstractmethod
    def diagnostics(self, server: State) -> dict[str, float]:
        """Return these numbers by name."""
