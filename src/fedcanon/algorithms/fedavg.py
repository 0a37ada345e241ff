"""Federated averaging."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fedcanon.algorithms.base import Algorithm, Prox, State, Work
from fedcanon.algorithms.schedules import Step, at, require_local_steps, require_step


@dataclass(frozen=True)
class FedAvg(Algorithm):
    """FedAvg: local steps and averaging; minimises f and ignores the penalty.

        client:  K steps x ← x − β g_i(x) from z
        server:  z ← z + η_g (x̄ − z)

    2d floats per client and round, no prox. Under heterogeneous data it stops at a distance O(βK)
    from the minimiser of f.

    McMahan, Moore, Ramage, Hampson, y Arcas 2017.
    """

    beta: Step = 0.1
    local_steps: int = 10
    server_step: Step = 1.0

    solves = "f"

    def __post_init__(self) -> None:
        require_step("beta", self.beta)
        require_step("server_step", self.server_step)
        require_local_steps(self.local_steps)

    def server_init(self, z: Tensor, prox: Prox) -> State:
        return {"z": z}

    def broadcast(self, server: State, t: int, rng: np.random.Generator) -> State:
        return {
            "z": server["z"],
            "beta": at(self.beta, t),
            "server_step": at(self.server_step, t),
        }

    def local(self, client: State, received: State, work: Work) -> tuple[State, State]:
        x = work.descend(received["z"], received["beta"], self.local_steps)
        return {"move": x - received["z"]}, {}

    def aggregate(self, server: State, sent: State, mean: State, share: float, prox: Prox) -> State:
        return {"z": server["z"] + sent["server_step"] * mean["move"]}
