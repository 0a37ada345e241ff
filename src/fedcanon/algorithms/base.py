"""The contract of an algorithm."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, ClassVar, Literal, Protocol, get_args, get_origin, get_type_hints

import numpy as np
from torch import Tensor

from fedcanon.algorithms.schedules import (
    Schedule,
    require_local_steps,
    require_step,
    started_at,
)
from fedcanon.algorithms.step_rules import (
    Facts,
    StepRules,
    local_step,
    safe_step,
    step_rules,
)
from fedcanon.compression import Encoded
from fedcanon.errors import FedcanonError
from fedcanon.penalties import Penalty

State = dict[str, Any]
"""Flat vectors (1-D tensors) and numbers, by name."""


class Prox(Protocol):
    """The proximal operator of h on the server; its calls are counted."""

    @property
    def penalty(self) -> Penalty:
        """The regulariser h itself."""
        ...

    def __call__(self, x: Tensor, step: float, *, counted: bool = True) -> Tensor:
        """Return prox_{step·h}(x) as a new vector; a step of 0 is the identity.

        ``counted`` is False for a result that the method itself does not need.
        """
        ...


class Work(Protocol):
    """The operations that an algorithm can use on a client."""

    def gradient(self, x: Tensor) -> Tensor:
        """Return the gradient g_i(x) on a new mini-batch; it is valid until the next call."""
        ...

    def full_gradient(self, x: Tensor) -> Tensor:
        """Return the exact gradient ∇f_i(x)."""
        ...

    def expansion(self, x: Tensor) -> Tensor:
        """Return f_i(x), ∇f_i(x) and the upper triangle of ∇²f_i(x), all exact, as one vector.

        ``fedcanon.expansion`` describes it. Only methods that are ``SecondOrder`` may call this.
        """
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
        """Take local steps x ← prox_{prox·h}(x − step·(g_i(x) + shift + s·(x − c))); return x.

        Terms that are left out are not computed: by default x ← x − step·g_i(x).

        Args:
            start: The first x.
            step: The step size.
            steps: The number of steps, each on a new mini-batch.
            shift: A vector that is added to every gradient.
            pull: The centre c and the strength s of a pull towards c.
            prox: The step size of the prox after every step; 0 for none.
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
        """Approximate prox_{eta·f_i}(centre) = argmin_x f_i(x) + ‖x − centre‖²/(2 eta).

        Args:
            centre: The argument of the prox.
            eta: The step size of the prox.
            start: The first x.
            step: The size of the gradient steps.
            steps: The number of mini-batch gradient steps, if ``tolerance`` is 0.
            tolerance: If above 0, take exact gradient steps until the gradient of the subproblem
                has at most this norm.
        """
        ...

    def prox(self, x: Tensor, step: float) -> Tensor:
        """Return prox_{step·h}(x); a step of 0 is the identity and is not counted."""
        ...

    def encode(self, u: Tensor) -> Encoded:
        """Return ``u`` as it is sent: compressed, clipped or unchanged.

        The ``vector`` of the result is what the server will receive. A method whose client stores
        something that depends on its upload must call this and use that vector. The engine encodes
        all other vectors of an upload.
        """
        ...


class Algorithm(ABC):
    """A federated method: eight functions on named flat vectors.

    An algorithm is a frozen dataclass of its hyper-parameters. It contains no training state, makes
    no random generator and knows nothing of data, models and processes. Vectors are never changed
    in place. ``local`` uses vectors only in element-wise arithmetic, in sums over the last
    dimension and in calls of ``work``, so that it also works for several clients at once, with a
    matrix of one row per client.

    In a round the server sends ``broadcast``, each participant answers with ``local``, the engine
    averages the uploads, and the server calls ``aggregate``. ``server_init`` and ``client_init``
    return the first states, ``model`` the trained model, ``prox_step`` and ``theory`` the allowed
    step sizes.

    Abilities that only some methods have are further base classes: see ``algorithms.capabilities``.
    """

    solves: ClassVar[str] = "f + h"
    """The problem that the method solves: "f + h", or "f" if it ignores the penalty."""

    partial_participation: ClassVar[bool] = True
    """Whether a round may leave clients out."""

    averages: ClassVar[Mapping[str, str]] = {}
    """Names of server vectors that are means of client vectors.

    {"e": "v"} means that the server's e is Σ p_i v_i over all clients after every round. When
    clients join or leave, the engine computes such a mean again, and the run continues.
    """

    alterable: ClassVar[frozenset[str]] = frozenset()
    """The names of upload vectors that may be compressed or clipped.

    A method whose client stores something that depends on such a vector must send
    ``work.encode(vector)`` and use the ``.vector`` of the result.
    """

    def __post_init__(self) -> None:
        """Check that step sizes are positive and that choices exist.

        Raises:
            FedcanonError: One of them is not.
        """
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
        """Return the server's state before round 0; ``z`` is the starting model."""
        return {"z": z}

    def client_init(self, z: Tensor) -> State:
        """Return a client's state before it first takes part; ``z`` is the starting model."""
        return {}

    @abstractmethod
    def broadcast(self, server: State, t: int, rng: np.random.Generator) -> State:
        """Return what every participant of round ``t`` receives: vectors, step sizes, coin flips.

        ``rng`` is the generator for random decisions of this round.
        """

    @abstractmethod
    def local(self, client: State, received: State, work: Work) -> tuple[State, State]:
        """Run a round on one client; return its upload and its new state.

        Args:
            client: The client's state.
            received: The broadcast.
            work: Gradients, local steps and the prox of this client.
        """

    @abstractmethod
    def aggregate(self, server: State, sent: State, mean: State, share: float, prox: Prox) -> State:
        """Return the server's new state.

        Args:
            server: The server's state before the round.
            sent: The broadcast.
            mean: The weighted average of the uploads.
            share: The participants' part of the total weight; |S|/N for equal weights.
            prox: The proximal operator of h.
        """

    def model(self, server: State) -> Tensor:
        """Return the model in the server's state, which is evaluated and saved."""
        z: Tensor = server["z"]
        return z

    def prox_step(self, rounds: int) -> float:
        """Return the largest step size of the prox in a run of ``rounds`` rounds; 0 without any."""
        return 0.0

    def theory(self, facts: Facts) -> StepRules:
        """Return the step sizes for "auto" and the limits on β."""
        K = getattr(self, "local_steps", 1)
        beta = local_step(facts, K)
        return step_rules(facts.L, K, alpha=safe_step(facts, beta * K), beta=beta)


def sends_steps(algorithm: Algorithm, server: State) -> bool:
    """Tell whether clients learn their steps from the broadcast, so that these may change."""
    sent = algorithm.broadcast(server, 0, np.random.default_rng(0))
    return bool(sent.keys() & {"alpha", "beta", "step"})


def scaled(algorithm: Algorithm, factor: float) -> Algorithm:
    """Return the algorithm with α, β and the gain times ``factor``, where it has them."""

    def times(step: Any) -> Any:
        if isinstance(step, Schedule):
            return started_at(step, factor * step.start)
        return factor * step if isinstance(step, float | int) else step

    steps = {name: getattr(algorithm, name, None) for name in ("alpha", "beta", "gain")}
    changes = {name: times(step) for name, step in steps.items() if step is not None}
    return replace(algorithm, **changes)  # type: ignore[type-var]
