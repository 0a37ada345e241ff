"""Operator splitting: every client solves a regularised subproblem of its own loss."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedcanon.algorithms.base import Algorithm, Prox, State, Work
from fedcanon.algorithms.capabilities import Assembling
from fedcanon.algorithms.schedules import Step, require_fraction, require_step, step_at
from fedcanon.algorithms.step_rules import Facts, StepRules, safe_step
from fedcanon.errors import FedcanonError


@dataclass(frozen=True)
class _Splitting(Algorithm):
    """How clients solve x ≈ prox_{ηf_i}(y) = argmin f_i(x) + ‖x − y‖²/(2η).

    By K mini-batch steps x ← x − β (g_i(x) + (x − y)/η), or with a ``tolerance`` by exact gradient
    steps until the gradient of the subproblem has at most that norm. β ≤ 1/(L + 1/η).
    """

    beta: Step = 0.1
    local_steps: int = 10
    tolerance: Step | None = None

    def _solver(self, t: int) -> State:
        tolerance = 0.0 if self.tolerance is None else step_at(self.tolerance, t)
        return {"step": step_at(self.beta, t), "steps": self.local_steps, "tolerance": tolerance}

    def _resolvent(
        self, work: Work, received: State, centre: Tensor, eta: float, start: Tensor
    ) -> Tensor:
        solver = {name: received[name] for name in ("step", "steps", "tolerance")}
        return work.solve(centre, eta, start, **solver)

    @property
    @abstractmethod
    def resolvent_step(self) -> float:
        """The η of prox_{ηf_i}."""

    def _step_rules(self, L: float, **others: float) -> StepRules:
        beta = 1 / (L + 1 / self.resolvent_step)
        return StepRules({**others, "beta": beta}, {"β ≤ 1/(L + 1/η): stable local solver": beta})


@dataclass(frozen=True)
class FedPD(_Splitting):
    """FedPD: primal-dual steps between communications; minimises f and ignores the penalty.

        client:  a_i = z;  repeat:  x_i ≈ prox_{ηf_i}(a_i − η λ_i)
                                    λ_i ← λ_i + (x_i − a_i)/η;  a_i ← x_i + η λ_i
        server:  z ← mean of the a_i

    One round is one communication; with probability ``skip`` a client goes on by itself instead,
    so that the number of repetitions is geometric with mean 1/(1 − skip) and the same for all. 2d
    floats per client and round, no prox of h. Exact for f if it never skips; else at a distance
    O(η). Needs all clients.

    Zhang, Hong, Dhople, Yin, Liu 2021: "FedPD: A Federated Learning Framework with Adaptivity to
    Non-IID Data".
    """

    eta: float = 1.0
    skip: float = 0.0

    solves = "f"
    partial_participation = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_step("eta", self.eta)
        require_fraction("skip", self.skip)

    def client_init(self, z: Tensor) -> State:
        return {"x": z, "dual": torch.zeros_like(z)}

    def broadcast(self, server: State, t: int, rng: np.random.Generator) -> State:
        cycles = int(rng.geometric(1 - self.skip))
        return {"z": server["z"], "cycles": cycles, **self._solver(t)}

    def local(self, client: State, received: State, work: Work) -> tuple[State, State]:
        x, dual, anchor, eta = client["x"], client["dual"], received["z"], self.eta
        for _ in range(received["cycles"]):
            x = self._resolvent(work, received, anchor - eta * dual, eta, start=x)
            dual = dual + (x - anchor) / eta
            anchor = x + eta * dual
        return {"anchor": anchor}, {"x": x, "dual": dual}

    def aggregate(self, server: State, sent: State, mean: State, share: float, prox: Prox) -> State:
        return {"z": mean["anchor"]}

    @property
    def resolvent_step(self) -> float:
        return self.eta

    def theory(self, facts: Facts) -> StepRules:
        return self._step_rules(facts.L, eta=1 / facts.L)


@dataclass(frozen=True)
class FedDyn(_Splitting):
    """FedDyn: losses with a dynamic linear and quadratic term; minimises f, ignores the penalty.

        client:  x_i ≈ argmin f_i(x) − ⟨g_i, x⟩ + (a/2)‖x − z‖²;  g_i ← g_i − a (x_i − z)
        server:  H ← H − a (|S|/N) mean(x_i − z);  z ← mean x_i − H/a

    ``strength`` is a. 2d floats per client and round, no prox of h. Exact for f, also with sampled
    clients; H is the mean of all g_i. ``evaluate = "averaged"`` evaluates mean x_i, as its authors
    plot, instead of z.

    Acar, Zhao, Matas Navarro, Mattina, Whatmough, Saligrama 2021: "Federated Learning Based on
    Dynamic Regularization".
    """

    strength: float = 1.0
    evaluate: Literal["server", "averaged"] = "server"

    solves = "f"
    averages = {"H": "g"}
    alterable = frozenset({"move"})

    def __post_init__(self) -> None:
        super().__post_init__()
        require_step("strength", self.strength)

    def server_init(self, z: Tensor, prox: Prox) -> State:
        return {"z": z, "averaged": z, "H": torch.zeros_like(z)}

    def client_init(self, z: Tensor) -> State:
        return {"g": torch.zeros_like(z)}

    def broadcast(self, server: State, t: int, rng: np.random.Generator) -> State:
        return {"z": server["z"], **self._solver(t)}

    def local(self, client: State, received: State, work: Work) -> tuple[State, State]:
        z, g, a = received["z"], client["g"], self.strength
        move = work.encode(self._resolvent(work, received, z + g / a, 1 / a, start=z) - z)
        return {"move": move}, {"g": g - a * move.vector}

    def aggregate(self, server: State, sent: State, mean: State, share: float, prox: Prox) -> State:
        H = server["H"] - self.strength * share * mean["move"]
        averaged = server["z"] + mean["move"]
        return {"z": averaged - H / self.strength, "averaged": averaged, "H": H}

    @property
    def resolvent_step(self) -> float:
        return 1 / self.strength

    def model(self, server: State) -> Tensor:
        model: Tensor = server["z" if self.evaluate == "server" else "averaged"]
        return model

    def theory(self, facts: Facts) -> StepRules:
        return self._step_rules(facts.L, strength=facts.L)


@dataclass(frozen=True)
class FedDR(_Splitting, Assembling):
    """FedDR: randomised Douglas–Rachford splitting; one prox per round, exact.

        client:  y_i ← y_i + r (z − x_i);  x_i ≈ prox_{ηf_i}(y_i);  r_i⁺ = 2x_i − y_i
        server:  r̄ ← r̄ + (|S|/N) mean(r_i⁺ − r_i);  z ← prox_{ηh}(r̄)

    r in (0, 2] is the ``relaxation``, called α by its authors; r̄ is the mean of all reflected
    points r_i. Everything starts at the same point ("flat"), or as published ("prox"): the first
    round has all clients and only makes x_i, r_i and their mean. 2d floats per client and round.
    Needs η < 1/ρ.

    Tran-Dinh, Pham, Phan, Nguyen 2021: "FedDR – Randomized Douglas-Rachford Splitting Algorithms
    for Nonconvex Federated Composite Optimization".
    """

    eta: float = 1.0
    relaxation: float = 1.0
    init: Literal["flat", "prox"] = "flat"

    averages = {"reflected": "reflected"}

    def __post_init__(self) -> None:
        super().__post_init__()
        require_step("eta", self.eta)
        _require_relaxation(self.relaxation)

    def server_init(self, z: Tensor, prox: Prox) -> State:
        return {"z": z, "reflected": z, "initial": self.init == "prox"}

    def client_init(self, z: Tensor) -> State:
        return {"x": z, "y": z, "reflected": z}

    def everyone(self, server: State) -> bool:
        return bool(server["initial"])

    def broadcast(self, server: State, t: int, rng: np.random.Generator) -> State:
        return {"z": server["z"], **self._solver(t)}

    def local(self, client: State, received: State, work: Work) -> tuple[State, State]:
        y = client["y"] + self.relaxation * (received["z"] - client["x"])
        x = self._resolvent(work, received, y, self.eta, start=client["x"])
        reflected = 2 * x - y
        state = {"x": x, "y": y, "reflected": reflected}
        return {"change": reflected - client["reflected"]}, state

    def aggregate(self, server: State, sent: State, mean: State, share: float, prox: Prox) -> State:
        reflected = server["reflected"] + share * mean["change"]
        z = server["z"] if server["initial"] else prox(reflected, self.eta)
        return {"z": z, "reflected": reflected, "initial": False}

    @property
    def resolvent_step(self) -> float:
        return self.eta

    def prox_step(self, rounds: int) -> float:
        return self.eta

    def theory(self, facts: Facts) -> StepRules:
        return self._step_rules(facts.L, eta=safe_step(facts))


@dataclass(frozen=True)
class FedADMM(_Splitting):
    """FedADMM: the alternating direction method of multipliers; one prox per round, exact.

        client:  a = θ z + (1 − θ) x_i;  x_i ≈ argmin f_i(x) + ⟨λ_i, x − a⟩ + (η/2)‖x − a‖²
                 λ_i ← λ_i + η (x_i − a);  r_i⁺ = x_i + λ_i/η
        server:  r̄ ← r̄ + (|S|/N) mean(r_i⁺ − r_i);  z ← prox_{h/η}(r̄)

    η is the penalty parameter, 1/η of FedDR. θ is the ``relaxation``; 1 is FedADMM as published.
    2d floats per client and round. Needs η > ρ.

    Wang, Marella, Anderson 2022: "FedADMM: A Federated Primal-Dual Algorithm Allowing Partial
    Participation".
    """

    eta: float = 1.0
    relaxation: float = 1.0

    averages = {"reflected": "reflected"}

    def __post_init__(self) -> None:
        super().__post_init__()
        require_step("eta", self.eta)
        _require_relaxation(self.relaxation)

    def server_init(self, z: Tensor, prox: Prox) -> State:
        return {"z": z, "reflected": z}

    def client_init(self, z: Tensor) -> State:
        return {"x": z, "dual": torch.zeros_like(z), "reflected": z}

    def broadcast(self, server: State, t: int, rng: np.random.Generator) -> State:
        return {"z": server["z"], **self._solver(t)}

    def local(self, client: State, received: State, work: Work) -> tuple[State, State]:
        anchor = torch.lerp(client["x"], received["z"], self.relaxation)
        centre = anchor - client["dual"] / self.eta
        x = self._resolvent(work, received, centre, 1 / self.eta, start=client["x"])
        dual = client["dual"] + self.eta * (x - anchor)
        reflected = x + dual / self.eta
        state = {"x": x, "dual": dual, "reflected": reflected}
        return {"change": reflected - client["reflected"]}, state

    def aggregate(self, server: State, sent: State, mean: State, share: float, prox: Prox) -> State:
        reflected = server["reflected"] + share * mean["change"]
        return {"z": prox(reflected, 1 / self.eta), "reflected": reflected}

    @property
    def resolvent_step(self) -> float:
        return 1 / self.eta

    def prox_step(self, rounds: int) -> float:
        return 1 / self.eta

    def theory(self, facts: Facts) -> StepRules:
        return self._step_rules(facts.L, eta=1 / safe_step(facts))


def _require_relaxation(relaxation: float) -> None:
    # 2 itself is Peaceman–Rachford splitting, which converges for strongly convex f.
    if not 0 < relaxation <= 2:
        raise FedcanonError(f"relaxation must be above 0 and at most 2, not {relaxation:g}.")
