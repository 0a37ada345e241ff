"""ProxSkip and its relatives: a coin decides when the expensive step is taken."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedcanon.algorithms.base import Algorithm, Prox, State, Work
from fedcanon.algorithms.capabilities import Diagnosed, Links, Mixed
from fedcanon.algorithms.schedules import Step, largest, step_at
from fedcanon.algorithms.step_rules import Facts, StepRules
from fedcanon.algorithms.topology import links
from fedcanon.errors import FedcanonError


@dataclass(frozen=True)
class _Skipping(Algorithm):
    """``probability`` p of the expensive step; by default p = 1/K for ``local_steps`` K."""

    beta: Step = 0.1
    local_steps: int = 10
    probability: float | None = None

    partial_participation = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.p <= 1:
            raise FedcanonError(f"probability must be above 0 and at most 1, not {self.p:g}.")

    @property
    def p(self) -> float:
        """The probability of the expensive step."""
        return 1 / self.local_steps if self.probability is None else self.probability

    def theory(self, facts: Facts) -> StepRules:
        beta = 1 / facts.L
        return StepRules({"beta": beta}, {"β ≤ 1/L: the theory of ProxSkip": beta})


@dataclass(frozen=True)
class ProxSkip(_Skipping):
    """ProxSkip: gradient steps on f + h of which only a fraction p calls the prox; a reference.

        x̂ = z − β (ḡ(z) − u)
        with probability p:  z ← prox_{(β/p)h}(x̂ − (β/p) u);  u ← u + (p/β)(z − x̂);  else z ← x̂

    ḡ is the mean of one gradient from each client, so every iteration communicates 2d floats and
    only the prox is skipped: p prox per round. Exact: u tends to ∇f(z*). Needs β ≤ 1/L, and
    β/p < 1/ρ, a larger prox step than β.

    Mishchenko, Malinovsky, Stich, Richtárik 2022: "ProxSkip: Yes! Local Gradient Steps Provably
    Lead to Communication Acceleration! Finally!".
    """

    alterable = frozenset({"gradient"})

    def server_init(self, z: Tensor, prox: Prox) -> State:
        return {"z": z, "u": torch.zeros_like(z)}

    def broadcast(self, server: State, t: int, rng: np.random.Generator) -> State:
        return {"z": server["z"], "beta": step_at(self.beta, t), "coin": rng.random() < self.p}

    def local(self, client: State, received: State, work: Work) -> tuple[State, State]:
        return {"gradient": work.gradient(received["z"]).clone()}, {}

    def aggregate(self, server: State, sent: State, mean: State, share: float, prox: Prox) -> State:
        u, beta = server["u"], sent["beta"]
        moved = server["z"] - beta * (mean["gradient"] - u)
        if not sent["coin"]:
            return {"z": moved, "u": u}
        z = prox(moved - beta / self.p * u, beta / self.p)
        return {"z": z, "u": u + self.p / beta * (z - moved)}

    def prox_step(self, rounds: int) -> float:
        return largest(self.beta, rounds) / self.p

    def theory(self, facts: Facts) -> StepRules:
        # The prox has the step β/p, which must stay in its domain.
        beta = min(1 / facts.L, 0.5 * self.p / facts.rho) if facts.rho else 1 / facts.L
        return replace(super().theory(facts), automatic={"beta": beta})


@dataclass(frozen=True)
class Scaffnew(_Skipping):
    """SCAFFNEW: local steps until a coin says communicate; minimises f and ignores the penalty.

        client:  e_i ← e_i − (p/β)(z − x_i);  x_i: K_t steps x ← x − β (g_i(x) + e_i) from z
        server:  z ← x̄

    One round is one communication; the number of local steps before it, K_t, is geometric with mean
    1/p and the same for all. p is the probability of *communicating*. 2d floats per client and
    round, no prox. Exact for f: e_i tends to −∇f_i(z*), Σ e_i = 0 always. Needs all clients and
    β ≤ 1/L.

    Mishchenko, Malinovsky, Stich, Richtárik 2022 (as ProxSkip).
    """

    solves = "f"

    def client_init(self, z: Tensor) -> State:
        # The first z is x_i itself, so that e_i starts at 0 whatever the scale.
        return {"e": torch.zeros_like(z), "x": z, "scale": 0.0}

    def broadcast(self, server: State, t: int, rng: np.random.Generator) -> State:
        steps = {"beta": step_at(self.beta, t), "steps": int(rng.geometric(self.p))}
        return {"z": server["z"], **steps}

    def local(self, client: State, received: State, work: Work) -> tuple[State, State]:
        z, beta = received["z"], received["beta"]
        e = client["e"] - client["scale"] * (z - client["x"])
        x = work.descend(z, beta, received["steps"], shift=e)
        return {"x": x}, {"e": e, "x": x, "scale": self.p / beta}

    def aggregate(self, server: State, sent: State, mean: State, share: float, prox: Prox) -> State:
        return {"z": mean["x"]}


@dataclass(frozen=True)
class DecentralisedProxSkip(Scaffnew, Mixed, Diagnosed):
    """Decentralised ProxSkip: SCAFFNEW on a network of nodes; minimises f, ignores the penalty.

        node i:  K_t steps q ← q − β (g_i(q) + e_i) from x_i, K_t geometric with mean 1/p
                 x_i ← (1 − 1/(2χ)) q_i + (1/(2χ)) Σ_j W_ij q_j;  e_i ← e_i + (p/β)(q_i − x_i)

    W is symmetric and doubly stochastic; ``topology`` is "star" (averaging through the server),
    "ring", "grid", "complete" or "erdos-renyi:P" with Metropolis weights, or the matrix itself.
    deg(i) vectors each way per communication, no prox. Exact for f; the model that is evaluated
    is the mean of all x_i. Needs all nodes and β ≤ 1/(2L); χ ≥ 1 in theory.

    Guo, Alghunaim, Yuan, Condat, Cao 2023: "Revisiting Decentralized ProxSkip: Achieving Linear
    Speedup".
    """

    topology: str | tuple[tuple[float, ...], ...] = "star"
    chi: float = 1.0
    graph_seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.5 <= self.chi < math.inf:
            raise FedcanonError(f"chi must be at least 0.5 (1 in theory), not {self.chi:g}.")

    def mixing(self, clients: int) -> Links:
        return links(self.topology, clients, 1 / (2 * self.chi), self.graph_seed)

    def model(self, server: State) -> Tensor:
        z: Tensor = server["z"]
        return z.mean(0) if z.ndim == 2 else z

    def diagnostics(self, server: State) -> dict[str, float]:
        """How far the nodes are from their mean: √(mean_i ‖x_i − x̄‖²)."""
        apart = (server["z"] - self.model(server)).double()
        return {"consensus_error": float(apart.pow(2).sum(-1).mean().sqrt())}

    def theory(self, facts: Facts) -> StepRules:
        limits = {"β ≤ 1/(2L): the theory of decentralised ProxSkip": 1 / (2 * facts.L)}
        return StepRules({"beta": 1 / (2 * facts.L)}, limits)
