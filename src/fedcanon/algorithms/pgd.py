"""Proximal gradient descent, the centralised reference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcanon.algorithms.base import Algorithm, Prox, State, Work
from fedcanon.algorithms.schedules import Step, largest, step_at


@dataclass(frozen=True)
class PGD(Algorithm):
    """PGD: exact proximal gradient steps on f + h, the reference for every other method.

        z ← prox_{αh}(z − α ∇f(z))

    Each round gathers one full gradient from every client: 2d floats, 1 prox. Exact for α ≤ 1/L.
    """

    alpha: Step = 0.1

    partial_participation = False
    alterable = frozenset({"gradient"})

    def broadcast(self, server: State, t: int, rng: np.random.Generator) -> State:
        return {"z": server["z"], "alpha": step_at(self.alpha, t)}

    def local(self, client: State, received: State, work: Work) -> tuple[State, State]:
        return {"gradient": work.full_gradient(received["z"])}, {}

    def aggregate(self, server: State, sent: State, mean: State, share: float, prox: Prox) -> State:
        alpha = sent["alpha"]
        return {"z": prox(server["z"] - alpha * mean["gradient"], alpha)}

    def prox_step(self, rounds: int) -> float:
        return largest(self.alpha, rounds)
