"""The contract of an algorithm."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol

import numpy as np
from torch import Tensor

State = dict[str, Any]
"""Named flat vectors (1-D tensors) and small numbers."""


class Prox(Protocol):
    """prox_{step·h} on the server: counted, returns a new vector; a step of 0 is the identity."""

    def __call__(self, x: Tensor, step: float, *, counted: bool = True) -> Tensor:
        """prox_{step·h}(x). ``counted`` is off for a copy kept only to look at."""
        ...


class Work(Protocol):
    """All that a client can do."""

    def full_gradient(self, x: Tensor) -> Tensor:
        """∇f_i(x), exact."""
        ...

    def descend(
        self, start: Tensor, step: float, steps: int, *, shift: Tensor | None = None
    ) -> Tensor:
        """``steps`` times x ← x − step·(g_i(x) + shift) from ``start``, on fresh mini-batches."""
        ...

    def prox(self, x: Tensor, step: float) -> Tensor:
        """prox_{step·h}(x), counted; a step of 0 is the identity and costs nothing."""
        ...

    def encode(self, u: Tensor) -> Tensor:
        """What the server will see of ``u``: ``u`` itself, compressed or clipped."""
        ...


class Algorithm(ABC):
    """A federated method: six small functions on named flat vectors.

    An algorithm is a frozen dataclass of its hyper-parameters. It holds no training state, draws no
    random number of its own and knows neither data nor models nor processes. Vectors are never
    changed in place. The client side touches vectors only by element-wise arithmetic and ``work``,
    so that it also runs on stacked clients.

    One round: the server sends ``broadcast``; each participant answers with ``local``; the engine
    averages the uploads and the server calls ``aggregate``.
    """

    solves: ClassVar[str] = "f + h"
    """The problem the method addresses: "f + h", or "f" for one that ignores the penalty."""

    partial_participation: ClassVar[bool] = True
    """Whether a round may leave clients out."""

    recalled: ClassVar[frozenset[str]] = frozenset()
    """Names in the broadcast that a client of the round before computes itself, by ``recall``."""

    @abstractmethod
    def server_init(self, z: Tensor, prox: Prox) -> State:
        """The server's state before round 0, from the starting model ``z``."""

    def client_init(self, z: Tensor) -> State:
        """A client's state when it first takes part; ``z`` is the starting model."""
        return {}

    @abstractmethod
    def broadcast(self, server: State, t: int, rng: np.random.Generator) -> State:
        """What every participant of round ``t`` receives: vectors, step sizes, coins."""

    def recall(self, previous: State, received: State) -> State:
        """The ``recalled`` entries, from the broadcast of the round before and the rest of this."""
        return {}

    @abstractmethod
    def local(self, client: State, received: State, work: Work) -> tuple[State, State]:
        """One client's round: its upload and its new state."""

    @abstractmethod
    def aggregate(self, server: State, sent: State, mean: State, share: float, prox: Prox) -> State:
        """The server's new state.

        ``mean`` is the (weighted) average upload, ``share`` the participants' part of the total
        weight (|S|/N for equal weights), ``sent`` what was broadcast.
        """

    def model(self, server: State) -> Tensor:
        """The vector that is evaluated and shipped."""
        z: Tensor = server["z"]
        return z

    def prox_step(self, rounds: int) -> float:
        """The largest step at which a run of so many rounds calls the prox; 0 if it never does."""
        return 0.0
