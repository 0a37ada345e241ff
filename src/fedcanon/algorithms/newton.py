"""Federated proximal Newton, for linear models."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcanon.algorithms.base import Prox, State, Work
from fedcanon.algorithms.capabilities import SecondOrder
from fedcanon.algorithms.quadratic_model import QuadraticModel
from fedcanon.algorithms.step_rules import Facts, StepRules, safe_step
from fedcanon.expansion import expansion_length, unpack_expansion

DECREASE = 1e-4
"""The part of the predicted decrease of f + h that a step must reach."""


@dataclass(frozen=True)
class Newton(SecondOrder):
    """Newton: f + h for linear models to full accuracy in about ten rounds, without step sizes.

    Clients send value, gradient and Hessian of their loss at the server's point y. Their means are
    those of f, exactly. The server keeps them for z, the last accepted point, which is the model.

        client:  f_i(y), ∇f_i(y), ∇²f_i(y)
        server:  if φ(y) is smaller than φ(z), where φ = f + h:  z ← y, s ← 1;  otherwise s ← s/2
                 y ← argmin_x ⟨∇f(z), x − z⟩ + (x − z)ᵀ∇²f(z)(x − z)/(2s) + h(x)

    Without h, s shortens the step; with h, y is exactly sparse for every s. If h is not convex, y
    is a stationary point of its subproblem with a lower value than z.

    d floats down, 1 + d + d(d + 1)/2 up. The subproblem takes up to some thousand prox on the
    server. All samples are used, whatever the batch size; all clients in every round.

    Lee, Sun, Saunders 2014: "Proximal Newton-type Methods for Minimizing Composite Functions".
    """

    max_floats: int = 20_000_000

    partial_participation = False

    def server_init(self, z: Tensor, prox: Prox) -> State:
        # From outside a constraint the first step could not be compared with anything.
        y = (
            z
            if math.isfinite(prox.penalty.value(z))
            else prox(z, safe_step(Facts(1.0, prox.penalty.rho)))
        )
        expansion = z.new_zeros(expansion_length(len(z)))
        return {"z": z, "y": y, "s": 1.0, "phi": math.inf, "expansion": expansion}

    def broadcast(self, server: State, t: int, rng: np.random.Generator) -> State:
        return {"z": server["y"]}

    def local(self, client: State, received: State, work: Work) -> tuple[State, State]:
        return {"expansion": work.expansion(received["z"])}, {}

    def aggregate(self, server: State, sent: State, mean: State, share: float, prox: Prox) -> State:
        y, phi = server["y"], float(mean["expansion"][0]) + prox.penalty.value(server["y"])
        if self._accepts(server, phi, prox):
            state = {"z": y, "s": 1.0, "phi": phi, "expansion": mean["expansion"]}
        else:
            state = {**server, "s": server["s"] / 2}
        return {**state, "y": self._next(state, prox)}

    def _accepts(self, server: State, phi: float, prox: Prox) -> bool:
        """Tell whether φ(y) is below φ(z) by a part of what was predicted, but for rounding."""
        if math.isinf(server["phi"]):
            return True
        z, y, h = server["z"], server["y"], prox.penalty.value
        gradient = server["expansion"][1 : 1 + len(z)]
        predicted = float(gradient.double() @ (y - z).double()) + h(y) - h(z)
        rounding = 16 * torch.finfo(z.dtype).eps * abs(server["phi"])
        limit: float = server["phi"] + DECREASE * min(predicted, 0.0) + rounding
        return phi <= limit

    def _next(self, state: State, prox: Prox) -> Tensor:
        """Return the next point to look at, computed in double precision."""
        z: Tensor = state["z"]
        _, gradient, hessian = unpack_expansion(state["expansion"].double(), len(z))
        # Rounding must not leave it with negative eigenvalues.
        hessian.diagonal().mul_(1 + math.sqrt(len(z)) * torch.finfo(z.dtype).eps)
        return QuadraticModel(z.double(), gradient, hessian / state["s"], prox).minimise().to(z)

    def theory(self, facts: Facts) -> StepRules:
        return StepRules({}, {})
