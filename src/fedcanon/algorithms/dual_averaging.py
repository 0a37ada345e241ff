"""Dual averaging: gradients are summed, and the prox is applied to their sum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcanon.algorithms.base import Algorithm, Prox, State, Work
from fedcanon.algorithms.schedules import Step, require_step, step_at
from fedcanon.algorithms.step_rules import Facts, StepRules, local_prox_rules
from fedcanon.errors import FedcanonError


@dataclass(frozen=True)
class FedDA(Algorithm):
    """FedDA: federated dual averaging, for convex penalties.

        client:  u = y;  for k < K:  w = prox_{(E + kβ)h}(u);  u ← u − β g_i(w)
        server:  y ← y + η_s mean(u_i − y);  E ← E + η_s β K;  z = prox_{Eh}(y)

    E, the sum of all steps so far, is the step of the prox: it grows without bound, and a weakly
    convex h leaves the domain E < 1/ρ. 2d floats per client and round, |S|K + 1 prox. Zeros survive
    the averaging; under heterogeneous data it stops at a distance O(βK) from the optimum.

    Yuan, Zaheer, Reddi 2021: "Federated Composite Optimization".
    """

    beta: Step = 0.1
    local_steps: int = 10
    server_step: Step = 1.0

    alterable = frozenset({"move"})

    def server_init(self, z: Tensor, prox: Prox) -> State:
        return {"z": z, "y": z, "E": 0.0}

    def broadcast(self, server: State, t: int, rng: np.random.Generator) -> State:
        steps = {"beta": step_at(self.beta, t), "server_step": step_at(self.server_step, t)}
        return {"y": server["y"], "E": server["E"], **steps}

    def local(self, client: State, received: State, work: Work) -> tuple[State, State]:
        u, E, beta = received["y"], received["E"], received["beta"]
        for k in range(self.local_steps):
            w = work.prox(u, E + k * beta)
            u = u - beta * work.gradient(w)
        return {"move": u - received["y"]}, {}

    def aggregate(self, server: State, sent: State, mean: State, share: float, prox: Prox) -> State:
        y = server["y"] + sent["server_step"] * mean["move"]
        E = server["E"] + sent["server_step"] * sent["beta"] * self.local_steps
        return {"z": prox(y, E), "y": y, "E": E}

    def prox_step(self, rounds: int) -> float:
        E = last_local = 0.0
        for t in range(rounds):
            beta, server_step = step_at(self.beta, t), step_at(self.server_step, t)
            last_local = E + (self.local_steps - 1) * beta
            E += server_step * beta * self.local_steps
        return max(E, last_local)

    def theory(self, facts: Facts) -> StepRules:
        return local_prox_rules(facts, self.local_steps)


@dataclass(frozen=True)
class FastFedDA(Algorithm):
    """Fast-FedDA: dual averaging with weights, for μ-strongly convex f.

        Π(G, V, A) = prox_{(A/D)h}((γ w₀ + (μ/2) V − G)/D),  D = (μ/2) A + γ
        client:  for k < K:  w = Π(G, V, A);  V += a w;  G += a g_i(w);  A += a
        server:  G, V = means of the clients' sums;  z = Π(G, V, A)

    G sums gradients and V models, with the weight a = (s + 1)^power of local iteration s, counted
    from the start of the run; γ = a/β. Exact, with an error of about 1/t. 4d floats per client and
    round, NK + 1 prox. Needs the prox up to the step 2/μ.

    Bao, Crawshaw, Luo, Liu 2022: "Fast Composite Optimization and Statistical Recovery in Federated
    Learning".
    """

    beta: float = 0.1
    local_steps: int = 10
    mu: float = 1e-3
    power: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_step("beta", self.beta)
        if not (self.mu >= 0 and self.power >= 0):
            raise FedcanonError("mu and power must be at least 0.")

    def server_init(self, z: Tensor, prox: Prox) -> State:
        return {"z": z, "w0": z, "G": torch.zeros_like(z), "V": torch.zeros_like(z), "s": 0, "A": 0}

    def client_init(self, z: Tensor) -> State:
        return {"w0": z}

    def broadcast(self, server: State, t: int, rng: np.random.Generator) -> State:
        return {name: server[name] for name in ("G", "V", "s", "A")}

    def local(self, client: State, received: State, work: Work) -> tuple[State, State]:
        G, V, A = received["G"], received["V"], received["A"]
        for s in range(received["s"], received["s"] + self.local_steps):
            a = self._weight(s)
            w = self._solution(client["w0"], G, V, A, s, work.prox)
            V = V + a * w
            G = G + a * work.gradient(w)
            A += a
        return {"G": G, "V": V}, client

    def aggregate(self, server: State, sent: State, mean: State, share: float, prox: Prox) -> State:
        s = server["s"] + self.local_steps
        A = server["A"] + sum(map(self._weight, range(server["s"], s)))
        z = self._solution(server["w0"], mean["G"], mean["V"], A, s, prox)
        return {"z": z, "w0": server["w0"], "G": mean["G"], "V": mean["V"], "s": s, "A": A}

    def _weight(self, s: int) -> float:
        return float((s + 1) ** self.power)

    def _scales(self, A: float, s: int) -> tuple[float, float]:
        """γ and D before local iteration ``s``."""
        gamma = self._weight(s) / self.beta
        return gamma, self.mu / 2 * A + gamma

    def _solution(
        self,
        w0: Tensor,
        G: Tensor,
        V: Tensor,
        A: float,
        s: int,
        prox: Callable[[Tensor, float], Tensor],
    ) -> Tensor:
        """Π(G, V, A) before local iteration ``s``."""
        gamma, D = self._scales(A, s)
        return prox((gamma * w0 + self.mu / 2 * V - G) / D, A / D)

    def prox_step(self, rounds: int) -> float:
        steps = range(rounds * self.local_steps)
        A = sum(map(self._weight, steps))
        return A / self._scales(A, len(steps))[1]

    def theory(self, facts: Facts) -> StepRules:
        limits = {"β ≤ 1/(2L): γ = 1/β outweighs the curvature": 1 / (2 * facts.L)}
        return StepRules({"beta": 1 / (2 * facts.L)}, limits)
