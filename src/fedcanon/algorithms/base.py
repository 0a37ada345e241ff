"""The contract of an algorithm."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Protocol, get_args, get_origin, get_type_hints

import numpy as np
from torch import Tensor

from fedcanon.algorithms.schedules import Schedule, require_local_steps, require_step
from fedcanon.compression import Encoded
from fedcanon.errors import FedcanonError

State = dict[str, Any]
"""Named flat vectors (1-D tensors) and small numbers."""


class Prox(Protocol):
    """prox_{step·h} on the server: counted, returns a new vector; a step of 0 is the identity."""

    def __call__(self, x: Tensor, step: float, *, counted: bool = True) -> Tensor:
        """prox_{step·h}(x). ``counted`` is off for a copy kept only to look at."""
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

    def encode(self, u: Tensor) -> Encoded:
        """``u`` as it travels: clipped, compressed or as it is; both sides move by its ``vector``.

        A method whose client keeps something that depends on its upload calls this itself. What is
        in an upload without it is encoded when it leaves.
        """
        ...


class Algorithm(ABC):
    """A federated method: eight functions on named flat vectors.

    An algorithm is a frozen dataclass of its hyper-parameters. It holds no training state, draws no
    random number of its own and knows neither data nor models nor processes. Vectors are never
    changed in place. The client side touches vectors only by element-wise arithmetic and ``work``,
    so that it also runs on stacked clients.

    One round: the server sends ``broadcast``; each participant answers with ``local``; the engine
    averages the uploads and the server calls ``aggregate``. ``server_init`` and ``client_init``
    begin, ``model`` is what comes out, ``prox_step`` and ``theory`` say which steps are allowed.

    What only some methods do is a capability, a class to derive from beside this one: see
    ``algorithms.capabilities``.
    """

    solves: ClassVar[str] = "f + h"
    """The problem the method addresses: "f + h", or "f" for one that ignores the penalty."""

    partial_participation: ClassVar[bool] = True
    """Whether a round may leave clients out."""

    averages: ClassVar[Mapping[str, str]] = {}
    """Which vectors of the server are means of vectors of the clients, by name.

    {"e": "v"} says that the server's e is Σ p_i v_i over all clients, at any time. When clients
    join or leave, the engine computes such a mean anew and the run goes on.
    """

    alterable: ClassVar[frozenset[str]] = frozenset()
    """The vectors of an upload that may be altered on their way: clipped or compressed.

    A method whose client keeps something that depends on such a vector must send
    ``work.encode(vector)`` and keep what follows from ``.vector`` of that.
    """

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

    def theory(self, L: float, rho: float) -> StepRules:
        """What "auto" means and how large β may be, where f is L-smooth and h ρ-weakly convex."""
        K = getattr(self, "local_steps", 1)
        return step_rules(L, K, alpha=safe_step(L, rho), beta=1 / (K * L))


@dataclass(frozen=True)
class StepRules:
    """The step sizes that theory suggests for a method.

    ``automatic`` has a number for every parameter that may be "auto". The local step β is filled in
    last, from rules asked for again once the others are known. ``beta_limits`` are upper limits on
    β, each under the reason for it.
    """

    automatic: dict[str, float]
    beta_limits: dict[str, float]


def step_rules(L: float, local_steps: int, **automatic: float) -> StepRules:
    """Rules with the limits on β that hold for all methods with K local gradient steps."""
    limits = {
        "β ≤ 2/L: stable local steps": 2 / L,
        "βKL ≤ 1: local models stay near": 1 / (local_steps * L),
    }
    return StepRules(automatic, limits)


def local_prox_rules(L: float, rho: float, local_steps: int) -> StepRules:
    """Rules of methods whose K local steps have the domain 1/ρ of the prox between them."""
    return step_rules(L, local_steps, beta=safe_step(L, rho) / local_steps)


def safe_step(L: float, rho: float) -> float:
    """1/L, but at most half the domain 1/ρ of the prox."""
    return min(1 / L, 0.5 / rho) if rho else 1 / L
