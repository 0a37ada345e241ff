"""Federated mirror descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedcanon.algorithms.base import Algorithm, Prox, State, Work
from fedcanon.algorithms.schedules import Step, step_at
from fedcanon.algorithms.step_rules import Facts, StepRules, local_prox_rules


@dataclass(frozen=True)
class FedMiD(Algorithm):
    """FedMiD: proximal local steps, averaging, and a prox on the server.

        client:  K steps x ← prox_{βh}(x − β g_i(x)) from z
        server:  z ← prox_{τh}(z + η_s mean(x_i − z))

    ``server_prox`` names τ: "published" η_s β K; "paper" η_s (the form of the FedCanon paper);
    "per_step" η_s β; "none" 0. ``client_prox = False`` leaves the prox to the server. 2d floats per
    client and round, |S|K + 1 prox. The published form applies h twice and tends to argmin f + 2h
    for small β; without the server's prox, to argmin f + h, but averaging destroys zeros.

    Yuan, Zaheer, Reddi 2021: "Federated Composite Optimization".
    """

    beta: Step = 0.1
    local_steps: int = 10
    server_step: Step = 1.0
    server_prox: Literal["published", "paper", "per_step", "none"] = "published"
    client_prox: bool = True

    alterable = frozenset({"move"})

    def _tau(self, t: int) -> float:
        beta, server_step = step_at(self.beta, t), step_at(self.server_step, t)
        return {
            "published": server_step * beta * self.local_steps,
            "paper": server_step,
            "per_step": server_step * beta,
            "none": 0.0,
        }[self.server_prox]

    def broadcast(self, server: State, t: int, rng: np.random.Generator) -> State:
        steps = {"beta": step_at(self.beta, t), "server_step": step_at(self.server_step, t)}
        return {"z": server["z"], **steps, "tau": self._tau(t)}

    def local(self, client: State, received: State, work: Work) -> tuple[State, State]:
        z, beta = received["z"], received["beta"]
        x = work.descend(z, beta, self.local_steps, prox=beta if self.client_prox else 0.0)
        return {"move": x - z}, {}

    def aggregate(self, server: State, sent: State, mean: State, share: float, prox: Prox) -> State:
        return {"z": prox(server["z"] + sent["server_step"] * mean["move"], sent["tau"])}

    def prox_step(self, rounds: int) -> float:
        local = [step_at(self.beta, t) for t in range(rounds)] if self.client_prox else []
        return max([*local, *(self._tau(t) for t in range(rounds))])

    def theory(self, facts: Facts) -> StepRules:
        return local_prox_rules(facts, self.local_steps)
