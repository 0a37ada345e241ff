"""SCAFFOLD: control variables on both sides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedcanon.algorithms.base import Prox, State, Work
from fedcanon.algorithms.damping import Damped, Gain
from fedcanon.algorithms.schedules import Step, step_at


@dataclass(frozen=True)
class Scaffold(Damped):
    """SCAFFOLD: local steps corrected by e − e_i; minimises f and ignores the penalty.

        client:  K steps x ← x − β (g_i(x) + c) from z,  c = λ(e − e_i)
                 option I: e_i⁺ = ∇f_i(z);  option II: e_i⁺ = (z − x)/(βK) − c
        server:  z ← z + η_g mean(x_i − z);  e ← e + (|S|/N) mean(e_i⁺ − e_i)

    4d floats per client and round, no prox; option I costs one more pass over a client's data.
    Exact for f, also with sampled clients; e is the mean of all e_i at any time. λ is 1, or
    min(1, gain/(βK)) with a ``gain``, which permits larger steps on networks.

    Karimireddy, Kale, Mohri, Reddi, Stich, Suresh 2020: "SCAFFOLD: Stochastic Controlled Averaging
    for Federated Learning".
    """

    beta: Step = 0.1
    local_steps: int = 10
    server_step: Step = 1.0
    option: Literal["I", "II"] = "II"
    gain: Gain = "off"

    solves = "f"
    averages = {"e": "e"}

    def server_init(self, z: Tensor, prox: Prox) -> State:
        return {"z": z, "e": torch.zeros_like(z)}

    def client_init(self, z: Tensor) -> State:
        return {"e": torch.zeros_like(z)}

    def broadcast(self, server: State, t: int, rng: np.random.Generator) -> State:
        beta = step_at(self.beta, t)
        steps = {"beta": beta, "server_step": step_at(self.server_step, t)}
        return {"z": server["z"], "e": server["e"], **steps, **self._damping(beta)}

    def local(self, client: State, received: State, work: Work) -> tuple[State, State]:
        z, beta, correction = received["z"], received["beta"], received["e"] - client["e"]
        if received["damping"] < 1:
            correction = received["damping"] * correction
        x = work.descend(z, beta, self.local_steps, shift=correction)
        if self.option == "I":
            e = work.full_gradient(z)
        else:
            e = (z - x) / (beta * self.local_steps) - correction
        return {"move": x - z, "change": e - client["e"]}, {"e": e}

    def aggregate(self, server: State, sent: State, mean: State, share: float, prox: Prox) -> State:
        return {
            "z": server["z"] + sent["server_step"] * mean["move"],
            "e": server["e"] + share * mean["change"],
            **self._recorded(sent),
        }
