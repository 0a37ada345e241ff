"""FedCanon, FedCanon II and FedCanon+: control variables and one prox per round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcanon.algorithms.base import Algorithm, Prox, State, Work
from fedcanon.algorithms.capabilities import Recalling, Relayed
from fedcanon.algorithms.schedules import Step, largest, server_and_local_step


@dataclass(frozen=True)
class _Canon(Algorithm):
    """Hyper-parameters of the family: server step α, local step β, K local steps.

    ``alpha = None`` is the paper's heuristic α = βK.
    """

    alpha: Step | None = None
    beta: Step = 0.1
    local_steps: int = 10

    def _steps(self, t: int) -> State:
        return server_and_local_step(self.alpha, self.beta, self.local_steps, t)

    def prox_step(self, rounds: int) -> float:
        if self.alpha is None:
            return self.local_steps * largest(self.beta, rounds)
        return largest(self.alpha, rounds)

    def _mean_step(self, z: Tensor, correction: Tensor, beta: float, work: Work) -> Tensor:
        """Δ = (z − x^K)/(βK) after K steps x ← x − β(g_i(x) + correction) from z."""
        x = work.descend(z, beta, self.local_steps, shift=correction)
        return (z - x) / (beta * self.local_steps)


@dataclass(frozen=True)
class FedCanon(_Canon, Relayed):
    """FedCanon: one prox per round, on the server; control variables against client drift.

    Client i keeps v_i, its last mean gradient; the server keeps e = mean of all v_i.

        client:  c = e − v_i;  K steps x ← x − β(g_i(x) + c) from z;  Δ_i = (z − x)/(βK)
                 v_i ← Δ_i − c
        server:  z ← prox_{αh}(z − α Δ̄);  e ← e + (|S|/N)(Δ̄ − e)

    With all clients this is the method as published (c_i = e − v_i, Σ c_i = 0); in this form any
    set S may take part. 3d floats per client and round, 1 prox. With h ≠ 0 and K > 1 it stops at a
    distance O(β(K − 1)) from a stationary point; FedCanon+ does not.

    Zhou, Zhong, Shi, Wen, Yu: "FedCanon: Non-Convex Composite Federated Learning with Efficient
    Proximal Operation on Heterogeneous Data".
    """

    averages = {"e": "v"}
    alterable = frozenset({"delta"})

    def server_init(self, z: Tensor, prox: Prox) -> State:
        return {"z": z, "e": torch.zeros_like(z)}

    def client_init(self, z: Tensor) -> State:
        return {"v": torch.zeros_like(z)}

    def broadcast(self, server: State, t: int, rng: np.random.Generator) -> State:
        return {"z": server["z"], "e": server["e"], **self._steps(t)}

    def ask(self, client: State, sent: State, *, compressed: bool) -> State:
        return {"z": sent["z"], "c": sent["e"] - client["v"], "beta": sent["beta"]}

    def answer(self, received: State, work: Work) -> State:
        delta = self._mean_step(received["z"], received["c"], received["beta"], work)
        return {"delta": work.encode(delta)}

    def settle(self, client: State, sent: State, answer: State) -> tuple[State, State]:
        return answer, {"v": answer["delta"] - (sent["e"] - client["v"])}

    def aggregate(self, server: State, sent: State, mean: State, share: float, prox: Prox) -> State:
        alpha = sent["alpha"]
        return {
            "z": prox(server["z"] - alpha * mean["delta"], alpha),
            # lerp returns Δ̄ itself at share = 1; e + (Δ̄ − e) would not, to the last bit.
            "e": torch.lerp(server["e"], mean["delta"], share),
        }


@dataclass(frozen=True)
class FedCanonII(_Canon):
    """FedCanon II: the same iterates with 2d floats; every client applies the prox itself.

    The server sends only Δ̄, the mean of the last uploads, and every client keeps the model.

        client:  z ← prox_{αh}(z − α Δ̄);  c = Δ̄ − v_i;  K steps x ← x − β(g_i(x) + c) from z
                 Δ_i = (z − x)/(βK);  v_i ← Δ_i − c
        server:  Δ̄ = mean of Δ_i

    N prox per round, all clients in every round. The server mirrors the model only to look at it;
    that prox is not counted. Bit for bit the iterates of FedCanon with all clients.
    """

    partial_participation = False
    alterable = frozenset({"delta"})

    def server_init(self, z: Tensor, prox: Prox) -> State:
        # A last step of 0 makes the clients' first "prox step" the identity.
        return {"z": z, "delta": torch.zeros_like(z), "alpha": 0.0}

    def client_init(self, z: Tensor) -> State:
        return {"z": z, "v": torch.zeros_like(z)}

    def broadcast(self, server: State, t: int, rng: np.random.Generator) -> State:
        steps = self._steps(t)
        return {"delta": server["delta"], "last_alpha": server["alpha"], **steps}

    def local(self, client: State, received: State, work: Work) -> tuple[State, State]:
        alpha = received["last_alpha"]
        z = work.prox(client["z"] - alpha * received["delta"], alpha)
        c = received["delta"] - client["v"]
        delta = work.encode(self._mean_step(z, c, received["beta"], work))
        return {"delta": delta}, {"z": z, "v": delta.vector - c}

    def aggregate(self, server: State, sent: State, mean: State, share: float, prox: Prox) -> State:
        alpha = sent["alpha"]
        mirror = prox(server["z"] - alpha * mean["delta"], alpha, counted=False)
        return {"z": mirror, "delta": mean["delta"], "alpha": alpha}


@dataclass(frozen=True)
class FedCanonPlus(_Canon, Relayed, Recalling):
    """FedCanon+: exact stationary points, one prox per round, any participation.

    The clients' correction is the last global step b = (z_prev − z)/α instead of the mean gradient.
    It contains the subgradient of h that the prox has just used, so that at a stationary point of
    f + h no client moves: b = 0 and v_i = ∇f_i(z). The server keeps e = mean of all v_i.

        client:  K steps x ← x − β(g_i(x) + b − v_i) from z
                 m = (z − x)/(βK) − b + v_i;  u_i = C(m − v_i);  v_i ← v_i + u_i
        server:  v̄ = e + ū;  z ← prox_{αh}(z − α v̄);  b = (z_prev − z)/α;  e ← e + (|S|/N) ū

    2d floats for a client that took part in the round before (it computes b itself), 3d for others.
    Uploads u_i vanish as the run converges, so compressing them (C) leaves no error floor.
    """

    averages = {"e": "v"}
    alterable = frozenset({"u"})
    recalled = frozenset({"b"})

    def server_init(self, z: Tensor, prox: Prox) -> State:
        return {"z": z, "b": torch.zeros_like(z), "e": torch.zeros_like(z)}

    def client_init(self, z: Tensor) -> State:
        return {"v": torch.zeros_like(z)}

    def broadcast(self, server: State, t: int, rng: np.random.Generator) -> State:
        return {"z": server["z"], "b": server["b"], **self._steps(t)}

    def recall(self, previous: State, received: State) -> State:
        return {"b": (previous["z"] - received["z"]) / previous["alpha"]}

    def ask(self, client: State, sent: State, *, compressed: bool) -> State:
        # 3d floats for a client that keeps nothing: z and c down, m up. To compress m − v it needs
        # v as well.
        v = client["v"]
        needed = {"z": sent["z"], "c": sent["b"] - v, "beta": sent["beta"]}
        return {**needed, "v": v} if compressed else needed

    def answer(self, received: State, work: Work) -> State:
        m = self._mean_step(received["z"], received["c"], received["beta"], work) - received["c"]
        return {"u": work.encode(m - received["v"])} if "v" in received else {"m": m}

    def settle(self, client: State, sent: State, answer: State) -> tuple[State, State]:
        u = answer["u"] if "u" in answer else answer["m"] - client["v"]
        return {"u": u}, {"v": client["v"] + u}

    def aggregate(self, server: State, sent: State, mean: State, share: float, prox: Prox) -> State:
        alpha = sent["alpha"]
        z = prox(server["z"] - alpha * (server["e"] + mean["u"]), alpha)
        return {
            "z": z,
            "b": (server["z"] - z) / alpha,
            "e": server["e"] + share * mean["u"],
        }
