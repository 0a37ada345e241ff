"""FedCanon, FedCanon II and FedCanon+: control variables and one prox per round."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcanon.algorithms.base import Prox, State, Work
from fedcanon.algorithms.capabilities import Cached, Recalling, Relayed
from fedcanon.algorithms.damping import Damped, Gain
from fedcanon.algorithms.schedules import (
    Schedule,
    Step,
    largest,
    server_and_local_step,
    started_at,
    step_at,
)
from fedcanon.algorithms.step_rules import Facts, StepRules, safe_step


@dataclass(frozen=True)
class _Canon(Damped):
    """Hyper-parameters of the family: server step α, local step β, K local steps, damping.

    ``alpha = None`` is the paper's heuristic α = βK. With a ``gain``, local steps use only a part
    of the correction, λ = min(1, gain/(βK)); "off" is λ = 1. A smaller λ permits larger steps on
    networks, at the price of some of the drift of FedAvg. As β falls, λ returns to 1.
    """

    alpha: Step | None = None
    beta: Step = 0.1
    local_steps: int = 10
    gain: Gain = "off"

    def _steps(self, t: int) -> State:
        steps = server_and_local_step(self.alpha, self.beta, self.local_steps, t)
        return {**steps, **self._damping(steps["beta"])}

    def theory(self, facts: Facts) -> StepRules:
        rules = super().theory(facts)
        total = self.local_steps * step_at(self.beta, 0)
        alpha = self._safe_alpha(facts, total)
        return replace(rules, automatic={**rules.automatic, "alpha": alpha})

    def _safe_alpha(self, facts: Facts, total: float) -> Step | None:
        """Return None for α = βK, or a smaller α that falls like β if the prox needs it."""
        limit = safe_step(facts, total)
        if limit == total:
            return None
        return started_at(self.beta, limit) if isinstance(self.beta, Schedule) else limit

    def prox_step(self, rounds: int) -> float:
        if self.alpha is None:
            return self.local_steps * largest(self.beta, rounds)
        return largest(self.alpha, rounds)

    def _mean_step(self, z: Tensor, c: Tensor, received: State, work: Work) -> Tensor:
        """Δ = (z − x^K)/(βK) + (1 − λ)c after K steps x ← x − β(g_i(x) + λc) from z.

        This is c and the mean of the gradients, however strongly the steps were damped.
        """
        beta, damping = received["beta"], received["damping"]
        x = work.descend(z, beta, self.local_steps, shift=c if damping == 1 else damping * c)
        mean_step: Tensor = (z - x).div_(beta * self.local_steps)
        return mean_step if damping == 1 else mean_step.add_((1 - damping) * c)


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
        numbers = {"beta": sent["beta"], "damping": sent["damping"]}
        return {"z": sent["z"], "c": sent["e"] - client["v"], **numbers}

    def answer(self, received: State, work: Work) -> State:
        delta = self._mean_step(received["z"], received["c"], received, work)
        return {"delta": work.encode(delta)}

    def settle(self, client: State, sent: State, answer: State) -> tuple[State, State]:
        return answer, {"v": answer["delta"] - (sent["e"] - client["v"])}

    def aggregate(self, server: State, sent: State, mean: State, share: float, prox: Prox) -> State:
        alpha = sent["alpha"]
        return {
            "z": prox(server["z"] - alpha * mean["delta"], alpha),
            # lerp returns Δ̄ itself at share = 1; e + (Δ̄ − e) would not, to the last bit.
            "e": torch.lerp(server["e"], mean["delta"], share),
            **self._recorded(sent),
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
        delta = work.encode(self._mean_step(z, c, received, work))
        return {"delta": delta}, {"z": z, "v": delta.vector - c}

    def aggregate(self, server: State, sent: State, mean: State, share: float, prox: Prox) -> State:
        alpha = sent["alpha"]
        mirror = prox(server["z"] - alpha * mean["delta"], alpha, counted=False)
        return {"z": mirror, "delta": mean["delta"], "alpha": alpha, **self._recorded(sent)}


@dataclass(frozen=True)
class FedCanonPlus(_Canon, Relayed, Recalling, Cached):
    """FedCanon+: exact stationary points, one prox per round, any participation.

    The clients' correction is the last global step b = (z_prev − z)/α instead of the mean gradient.
    It contains the subgradient of h that the prox has just used, so that at a stationary point of
    f + h no client moves: b = 0 and v_i = ∇f_i(z). The server keeps e = mean of all v_i.

        client:  K steps x ← x − β(g_i(x) + b − v_i) from z
                 m = (z − x)/(βK) − b + v_i;  u_i = C(m − v_i);  v_i ← v_i + u_i
        server:  v̄ = e + ū;  z ← prox_{αh}(z − α v̄);  b = (z_prev − z)/α;  e ← e + (|S|/N) ū

    2d floats for a client that took part in the round before (it computes b itself), 3d for others.
    Uploads u_i vanish as the run converges, so compressing them (C) leaves no error floor.

    If ``accelerated``, the server takes Nesterov steps. w is the prox point, which is the model,
    and z what clients receive. θ, the length of the memory, returns to 1 where step and momentum
    disagree. L̂ is the largest ‖v̄ − v̄_prev‖/‖z − z_prev‖ of about the last ten visits of a client,
    q = 1 − 0.3|S|/N, and α is the upper limit of the step. Clients and messages are the same, and
    so are the fixed points (z = w).

        server:  a = min(α, max(q/L̂, min(βK|S|/N, 0.3α)));  w⁺ = prox_{ah}(z − a v̄)
                 θ ← 1 if ⟨z − w⁺, w⁺ − w⟩ > 0
                 θ⁺ = (1 + √(1 + 4θ²))/2;  z⁺ = w⁺ + ((θ − 1)/θ⁺)(w⁺ − w);  b = (z − z⁺)/a
    """

    accelerated: bool = False

    averages = {"e": "v"}
    alterable = frozenset({"u"})
    recalled = frozenset({"b"})

    def server_init(self, z: Tensor, prox: Prox) -> State:
        zero = torch.zeros_like(z)
        state = {"z": z, "b": zero, "e": zero, "server_step": 1.0}
        if not self.accelerated:
            return state
        return {**state, "w": z, "v": zero, "theta": 1.0, "curvature": 0.0}

    def client_init(self, z: Tensor) -> State:
        return {"v": torch.zeros_like(z)}

    def broadcast(self, server: State, t: int, rng: np.random.Generator) -> State:
        last_step = server["server_step"]
        return {"z": server["z"], "b": server["b"], "last_step": last_step, **self._steps(t)}

    def recall(self, previous: State, received: State) -> State:
        return {"b": (previous["z"] - received["z"]) / received["last_step"]}

    def ask(self, client: State, sent: State, *, compressed: bool) -> State:
        # 3d floats for a client that keeps nothing: z and c down, m up. To compress m − v it needs
        # v as well.
        v = client["v"]
        numbers = {"beta": sent["beta"], "damping": sent["damping"]}
        needed = {"z": sent["z"], "c": sent["b"] - v, **numbers}
        return {**needed, "v": v} if compressed else needed

    def answer(self, received: State, work: Work) -> State:
        m = self._mean_step(received["z"], received["c"], received, work).sub_(received["c"])
        return {"u": work.encode(m.sub_(received["v"]))} if "v" in received else {"m": m}

    def settle(self, client: State, sent: State, answer: State) -> tuple[State, State]:
        u = answer["u"] if "u" in answer else answer["m"] - client["v"]
        return {"u": u}, {"v": client["v"] + u}

    def moved(self, old: Tensor, new: Tensor) -> State:
        return {"u": new - old}

    def aggregate(self, server: State, sent: State, mean: State, share: float, prox: Prox) -> State:
        v, step, memory = server["e"] + mean["u"], sent["alpha"], State()
        if self.accelerated:
            curvature = self._curvature(server, v, share)
            # L̂ is too small where the last move had little curvature, hence 0.7; with few clients
            # in a round it is too large, because it also contains how they differ. Noise makes the
            # step smaller, which helps, and then ever smaller, which does not: hence a floor. The
            # fewer clients, the older the gradients in e, and the shorter the steps that they bear.
            total = sent["beta"] * self.local_steps
            measured = (1 - 0.3 * share) / curvature if curvature else total
            step = min(step, max(min(share * total, 0.3 * step), measured))
        z = w = prox(server["z"] - step * v, step)
        if self.accelerated:
            z, theta = self._extrapolated(server, w)
            memory = {"w": w, "v": v, "theta": theta, "curvature": curvature}
        b, e = (server["z"] - z) / step, server["e"] + share * mean["u"]
        return {"z": z, "b": b, "e": e, "server_step": step, **memory, **self._recorded(sent)}

    def _curvature(self, server: State, v: Tensor, share: float) -> float:
        """Return L̂, which forgets a tenth of itself each time that a client is visited."""
        distance = server["server_step"] * float(server["b"].norm())
        remembered: float = (1 - 0.1 * share) * server["curvature"]
        measured = float((v - server["v"]).norm()) / distance if distance else 0.0
        return max(remembered, measured)

    def _extrapolated(self, server: State, w: Tensor) -> tuple[Tensor, float]:
        """Return z⁺ and θ⁺."""
        momentum = w - server["w"]
        theta = 1.0 if torch.dot(server["z"] - w, momentum) > 0 else server["theta"]
        next_theta = (1 + math.sqrt(1 + 4 * theta**2)) / 2
        return w + (theta - 1) / next_theta * momentum, next_theta

    def theory(self, facts: Facts) -> StepRules:
        rules = super().theory(facts)
        steps: dict[str, Any] = {"accelerated": not facts.compressed}
        if not facts.tried:
            # Where the Hessians of clients differ much, longer local steps slow the method down.
            steps["beta"] = 0.25 / facts.L
            if self.accelerated and facts.exact:  # then α is only a limit
                steps["alpha"] = 0.9 / facts.rho if facts.rho else 1e4 / facts.L
        limits = {"β ≤ 2/L: stable local steps": 2 / facts.L}  # long paths are no harm: b corrects
        return StepRules({**rules.automatic, **steps}, limits)

    def model(self, server: State) -> Tensor:
        model: Tensor = server["w" if self.accelerated else "z"]
        return model

    def diagnostics(self, server: State) -> dict[str, float]:
        step = {"server_step": server["server_step"]} if self.accelerated else {}
        return {**super().diagnostics(server), **step}
