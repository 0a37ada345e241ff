"""Federated averaging: as it is, with server momentum, a proximal term or local momentum."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fedcanon.algorithms.base import Algorithm, Prox, State, Work
from fedcanon.algorithms.schedules import Step, require_fraction, server_and_local_step, step_at
from fedcanon.errors import FedcanonError


@dataclass(frozen=True)
class FedAvg(Algorithm):
    """FedAvg: local steps and averaging; minimises f and ignores the penalty.

        client:  K steps x ← x − β g_i(x) from z
        server:  m ← momentum·m + (x̄ − z);  z ← z + η_g m

    m starts at 0. Without ``momentum`` this is the method of McMahan et al., with it that of Hsu et
    al., who call it FedAvgM. The class ``FedAvgM`` is another method, with its momentum in the
    local steps. 2d floats per client and round, no prox. Under heterogeneous data it stops at a
    distance O(βK) from the minimiser of f, at the same point for any momentum.

    McMahan, Moore, Ramage, Hampson, y Arcas 2017: "Communication-Efficient Learning of Deep
    Networks from Decentralized Data".
    Hsu, Qi, Brown 2019: "Measuring the Effects of Non-Identical Data Distribution for Federated
    Visual Classification".
    """

    beta: Step = 0.1
    local_steps: int = 10
    server_step: Step = 1.0
    momentum: float = field(default=0.0, kw_only=True)  # the fourth argument of FedProx is mu

    solves = "f"
    alterable = frozenset({"move"})

    def __post_init__(self) -> None:
        super().__post_init__()
        require_fraction("momentum", self.momentum)

    def server_init(self, z: Tensor, prox: Prox) -> State:
        return {"z": z, "m": torch.zeros_like(z)} if self.momentum else {"z": z}

    def broadcast(self, server: State, t: int, rng: np.random.Generator) -> State:
        steps = {"beta": step_at(self.beta, t), "server_step": step_at(self.server_step, t)}
        return {"z": server["z"], **steps}

    def local(self, client: State, received: State, work: Work) -> tuple[State, State]:
        x = work.descend(received["z"], received["beta"], self.local_steps)
        return {"move": x - received["z"]}, {}

    def aggregate(self, server: State, sent: State, mean: State, share: float, prox: Prox) -> State:
        z, step, move = server["z"], sent["server_step"], mean["move"]
        if not self.momentum:
            return {"z": z + step * move}
        m = self.momentum * server["m"] + move
        return {"z": z + step * m, "m": m}


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedProx: FedAvg whose local steps are pulled back to the server's model; ignores the penalty.

        client:  K steps x ← x − β (g_i(x) + μ (x − z)) from z
        server:  z ← z + η_g (x̄ − z), or with FedAvg's ``momentum``

    ``mu`` is μ; μ = 0 is FedAvg. 2d floats per client and round, no prox of h. The pull shortens
    the drift and does not remove it.

    Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith 2020: "Federated Optimization in Heterogeneous
    Networks".
    """

    mu: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.mu >= 0:
            raise FedcanonError(f"mu must be at least 0, not {self.mu:g}.")

    def local(self, client: State, received: State, work: Work) -> tuple[State, State]:
        z = received["z"]
        x = work.descend(z, received["beta"], self.local_steps, pull=(z, self.mu))
        return {"move": x - z}, {}


@dataclass(frozen=True)
class FedAvgM(Algorithm):
    """FedAvg-M: local steps mixed with the last global direction g; ignores the penalty.

        client:  K steps y ← y − β (w g_i(y) + (1 − w) g) from z;  D_i = (z − y)/(βK)
        server:  g ← D̄;  z ← z − α g

    ``fresh`` is w, the weight of the fresh gradient; w = 1 is FedAvg. α = βK where it is not given.
    3d floats per client and round, no prox. The bias of FedAvg shrinks with w. This is not the
    server momentum of Hsu et al. 2019, which is called FedAvgM too: that is ``FedAvg(momentum=…)``.

    Cheng, Huang, Wu, Yuan 2023: "Momentum Benefits Non-IID Federated Learning Simply and Provably".
    """

    alpha: Step | None = None
    beta: Step = 0.1
    local_steps: int = 10
    fresh: float = 0.1

    solves = "f"
    alterable = frozenset({"direction"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.fresh <= 1:
            raise FedcanonError(f"fresh must be above 0 and at most 1, not {self.fresh:g}.")

    def server_init(self, z: Tensor, prox: Prox) -> State:
        return {"z": z, "g": torch.zeros_like(z)}

    def broadcast(self, server: State, t: int, rng: np.random.Generator) -> State:
        steps = server_and_local_step(self.alpha, self.beta, self.local_steps, t)
        return {"z": server["z"], "g": server["g"], **steps}

    def local(self, client: State, received: State, work: Work) -> tuple[State, State]:
        z, beta, w = received["z"], received["beta"], self.fresh
        y = work.descend(z, beta * w, self.local_steps, shift=(1 - w) / w * received["g"])
        return {"direction": (z - y) / (beta * self.local_steps)}, {}

    def aggregate(self, server: State, sent: State, mean: State, share: float, prox: Prox) -> State:
        g = mean["direction"]
        return {"z": server["z"] - sent["alpha"] * g, "g": g}
