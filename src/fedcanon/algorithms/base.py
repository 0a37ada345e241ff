"""The contract of an algorithm."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Protocol, get_args, get_origin, get_type_hints

import numpy as np
from torch import Tensor

from fedcanon.algorithms.schedules import Schedule, require_local_steps, require_step
from fedcanon.errors import FedcanonError

State = dict[str, Any]
"""Named flat vectors (1-D tensors) and small numbers."""


_OWN = "client/"
"""Marks the entries of a client's own state in messages to clients that keep nothing."""


class Prox(Protocol):
    """prox_{step·h} on the server: counted, returns a new vector; a step of 0 is the identity."""

    def __call__(self, x: Tensor, step: float, *, counted: bool = True) -> Tensor:
        """prox_{step·h}(x). ``counted`` is off for a copy kept only to look at."""
        ...


class OnItsWay(Protocol):
    """A vector as it travels: compressed, clipped or as it was."""

    @property
    def vector(self) -> Tensor:
        """What the receiver makes of it."""
        ...


class Work(Protocol):
    """All that a client can do."""

    def gradient(self, x: Tensor) -> Tensor:
        """g_i(x) on a fresh mini-batch; valid until the next call."""
        ...

    def full_gradient(self, x: Tensor) -> Tensor:
        """∇f_i(x), exact."""
        ...

    def descend(
        self,
        start: Tensor,
        step: float,
        steps: int,
        *,
        shift: Tensor | None = None,
        pull: tuple[Tensor, float] | None = None,
        prox: float = 0.0,
    ) -> Tensor:
        """``steps`` times x ← prox_{prox·h}(x − step·(g_i(x) + shift + s·(x − centre))).

        Starts from ``start``, on fresh mini-batches; ``pull`` is (centre, s). What is left out is
        not computed: by default x ← x − step·g_i(x).
        """
        ...

    def solve(
        self,
        centre: Tensor,
        eta: float,
        start: Tensor,
        *,
        step: float,
        steps: int,
        tolerance: float,
    ) -> Tensor:
        """About prox_{eta·f_i}(centre) = argmin_x f_i(x) + ‖x − centre‖²/(2 eta).

        By ``steps`` mini-batch gradient steps from ``start``; or, with a ``tolerance`` above 0, by
        exact gradient steps until the gradient of the subproblem has at most that norm.
        """
        ...

    def prox(self, x: Tensor, step: float) -> Tensor:
        """prox_{step·h}(x), counted; a step of 0 is the identity and costs nothing."""
        ...

    def encode(self, u: Tensor) -> OnItsWay:
        """``u`` as it travels: compressed or clipped; both sides move by its ``vector``."""
        ...


@dataclass(frozen=True)
class Links:
    """Who averages whose uploads in a method without one common average.

    Node i gets Σ_j weights[i, j]·upload_j and exchanges messages with degrees[i] neighbours.
    """

    weights: Tensor
    degrees: tuple[int, ...]


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

    compressible: ClassVar[bool] = False
    """Whether uploads go through ``work.encode``, so that a compressor may be set."""

    recalled: ClassVar[frozenset[str]] = frozenset()
    """Names in the broadcast that a client of the round before computes itself, by ``recall``."""

    def __post_init__(self) -> None:
        """Refuse step sizes that are not positive and choices that do not exist."""
        hints = get_type_hints(type(self))
        for field in fields(self):  # type: ignore[arg-type]  # every algorithm is a dataclass
            name, value, hint = field.name, getattr(self, field.name), hints[field.name]
            if Schedule in get_args(hint) and value is not None:
                require_step(name, value)
            if get_origin(hint) is Literal and value not in get_args(hint):
                choices = ", ".join(map(repr, get_args(hint)))
                raise FedcanonError(f"{name} must be one of {choices}, not {value!r}.")
        require_local_steps(getattr(self, "local_steps", 1))

    def server_init(self, z: Tensor, prox: Prox) -> State:
        """The server's state before round 0, from the starting model ``z``."""
        return {"z": z}

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

    def request(self, client: State, sent: State, *, compressed: bool) -> State:
        """What a client that keeps nothing is sent: the broadcast and its own state, in one.

        For deployments in which the server keeps the states: ``request``, ``respond`` and
        ``settle`` together are ``local``. A method that knows a shorter way says so here;
        ``compressed`` tells that uploads go through a compressor.
        """
        return {**sent, **{f"{_OWN}{name}": entry for name, entry in client.items()}}

    def respond(self, received: State, work: Work) -> State:
        """The answer of a client that keeps nothing."""
        client = {k.removeprefix(_OWN): v for k, v in received.items() if k.startswith(_OWN)}
        sent = {name: entry for name, entry in received.items() if not name.startswith(_OWN)}
        upload, state = self.local(client, sent, work)
        return {**upload, **{f"{_OWN}{name}": entry for name, entry in state.items()}}

    def settle(self, client: State, sent: State, response: State) -> tuple[State, State]:
        """Upload and new state of a client that keeps nothing, from its (decoded) answer."""
        state = {k.removeprefix(_OWN): v for k, v in response.items() if k.startswith(_OWN)}
        return {k: v for k, v in response.items() if not k.startswith(_OWN)}, state

    def regrouped(self, server: State, clients: Sequence[tuple[float, State]]) -> State | None:
        """The server's state once clients have joined or left for good.

        ``clients`` are those that remain, by weight (they add up to 1) and state. None where the
        method must begin anew from its model.
        """
        return None

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

    def everyone(self, server: State) -> bool:
        """Whether the next round must have all clients."""
        return not self.partial_participation

    def links(self, clients: int) -> Links | None:
        """Who averages whose uploads; None for one server that averages them all.

        With links, ``mean`` has a row for each client, and of a matrix in the broadcast each client
        receives its own row.
        """
        return None

    def diagnostics(self, server: State) -> dict[str, float]:
        """Numbers of the method's own that are worth recording."""
        return {}

    def prox_step(self, rounds: int) -> float:
        """The largest step at which a run of so many rounds calls the prox; 0 if it never does."""
        return 0.0

    def automatic(self, L: float, rho: float) -> dict[str, float]:
        """What "auto" means for a step size, given the smoothness L of f and the ρ of h.

        The local step ``beta`` is filled in last: its rule may use the other parameters.
        """
        return {"alpha": safe_step(L, rho), "beta": 1 / (L * getattr(self, "local_steps", 1))}

    def beta_limits(self, L: float) -> dict[str, float]:
        """Why the local step β should not be larger, and than what."""
        local_steps = getattr(self, "local_steps", 1)
        return {
            "β ≤ 2/L: stable local steps": 2 / L,
            "βKL ≤ 1: local models stay near": 1 / (local_steps * L),
        }


def safe_step(L: float, rho: float) -> float:
    """1/L, but at most half the domain 1/ρ of the prox."""
    return min(1 / L, 0.5 / rho) if rho else 1 / L
