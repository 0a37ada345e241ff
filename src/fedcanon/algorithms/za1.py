"""The method of Zhang, Hu and Johansson, called ZA1 in the FedCanon paper."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedcanon.algorithms.base import Algorithm, Prox, State, Work
from fedcanon.algorithms.schedules import Step, largest, require_step, step_at
from fedcanon.algorithms.step_rules import Facts, StepRules, local_prox_rules


@dataclass(frozen=True)
class ZA1(Algorithm):
    """ZA1: local steps with a prox each, averaging before the prox; exact.

        τ = β η_g K, of the round before
        client:  c_i = (p_prev − x̄)/τ − ḡ_i, 0 at first;  p = prox_{τh}(x̄);  y = w = p
                 for k < K:  y ← y − β (g_i(w) + c_i);  w = prox_{(k+1)βh}(y)
                 ḡ_i = the mean of these K gradients
        server:  p = prox_{τh}(x̄);  x̄ ← p + η_g (ȳ − p);  z = prox_{τh}(x̄)

    Averages are taken of models before their prox, so that no zero is lost; Σ c_i = 0. 2d floats
    per client and round, N(K + 1) + 1 prox, of which the last of each client is never used. Needs
    all clients and τ < 1/ρ; the model of round 0 is already a prox of the start.

    Zhang, Hu, Johansson 2024: "Composite Federated Learning with Heterogeneous Data".
    """

    beta: Step = 0.1
    local_steps: int = 10
    server_step: float = 1.0

    partial_participation = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_step("server_step", self.server_step)

    def _tau(self, beta: float) -> float:
        return beta * self.server_step * self.local_steps

    def server_init(self, z: Tensor, prox: Prox) -> State:
        tau = self._tau(step_at(self.beta, 0))
        return {"before": z, "z": prox(z, tau), "tau": tau}

    def client_init(self, z: Tensor) -> State:
        return {"p": z, "mean_gradient": torch.zeros_like(z)}

    def broadcast(self, server: State, t: int, rng: np.random.Generator) -> State:
        return {"before": server["before"], "tau": server["tau"], "beta": step_at(self.beta, t)}

    def local(self, client: State, received: State, work: Work) -> tuple[State, State]:
        beta, tau = received["beta"], received["tau"]
        c = (client["p"] - received["before"]) / tau - client["mean_gradient"]
        p = y = w = work.prox(received["before"], tau)
        for k in range(self.local_steps):
            y = y - beta * (work.gradient(w) + c)
            w = work.prox(y, (k + 1) * beta)
        mean_gradient = (p - y) / (beta * self.local_steps) - c
        return {"y": y}, {"p": p, "mean_gradient": mean_gradient}

    def aggregate(self, server: State, sent: State, mean: State, share: float, prox: Prox) -> State:
        before = server["z"] + self.server_step * (mean["y"] - server["z"])
        tau = self._tau(sent["beta"])
        return {"before": before, "z": prox(before, tau), "tau": tau}

    def prox_step(self, rounds: int) -> float:
        return largest(self.beta, rounds) * self.local_steps * max(1.0, self.server_step)

    def theory(self, facts: Facts) -> StepRules:
        # Control variables that are not damped stand a fraction of the steps of others on networks.
        quarter = replace(facts, L=4 * facts.L) if facts.tried else facts
        return local_prox_rules(quarter, self.local_steps)
