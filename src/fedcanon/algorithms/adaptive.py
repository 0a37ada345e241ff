"""FedAvg with a server that chooses the size of its steps itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcanon.algorithms.base import Prox, State, Work
from fedcanon.algorithms.capabilities import Diagnosed
from fedcanon.algorithms.fedavg import FedAvg
from fedcanon.algorithms.schedules import Step, require_fraction, require_step, step_at


@dataclass(frozen=True)
class FedAdam(FedAvg):
    """FedAdam: the server takes Adam's steps along the mean move; minimises f, ignores the penalty.

        client:  K steps x ← x − β g_i(x) from z
        server:  Δ = x̄ − z;  m ← β₁ m + (1 − β₁) Δ;  v ← β₂ v + (1 − β₂) Δ²
                 z ← z + η_g m/(√v + τ)

    β₁ is ``momentum``, β₂ ``second_momentum`` and τ ``floor``; squares, roots and quotients are
    taken entry by entry. As in the paper m starts at 0, v at τ², and neither is corrected for its
    start. A round moves an entry by about η_g, and by less only where |Δ| comes down to τ. 2d
    floats per client and round, no prox.

    Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan 2021: "Adaptive Federated
    Optimization", Algorithm 2.
    """

    server_step: Step = 0.1
    momentum: float = 0.9
    second_momentum: float = 0.99
    floor: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        require_fraction("second_momentum", self.second_momentum)
        require_step("floor", self.floor)

    def server_init(self, z: Tensor, prox: Prox) -> State:
        return {"z": z, "m": torch.zeros_like(z), "v": torch.full_like(z, self.floor**2)}

    def aggregate(self, server: State, sent: State, mean: State, share: float, prox: Prox) -> State:
        move, step = mean["move"], sent["server_step"]
        m = self.momentum * server["m"] + (1 - self.momentum) * move
        v = self._second_moment(server["v"], move.square())
        return {"z": server["z"] + step * m / (v.sqrt() + self.floor), "m": m, "v": v}

    def _second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        """Return the new v; ``square`` is Δ²."""
        return self.second_momentum * v + (1 - self.second_momentum) * square


@dataclass(frozen=True)
class FedYogi(FedAdam):
    """FedYogi: FedAdam whose second moment changes by bounded amounts; ignores the penalty.

        client:  K steps x ← x − β g_i(x) from z
        server:  Δ = x̄ − z;  m ← β₁ m + (1 − β₁) Δ;  v ← v − (1 − β₂) Δ² sign(v − Δ²)
                 z ← z + η_g m/(√v + τ)

    v moves towards Δ² by (1 − β₂)Δ², not by a part of the difference: where moves have become
    small it stays large for long, and steps stay careful. Parameters, start and cost are FedAdam's.

    Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan 2021: "Adaptive Federated
    Optimization", Algorithm 2.
    """

    def _second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        return v - (1 - self.second_momentum) * square * (v - square).sign()


@dataclass(frozen=True)
class FedExP(Diagnosed):
    """FedExP: the server goes the further the more the clients disagree; ignores the penalty.

        client:  K steps x ← x − β g_i(x) from z;  Δ_i = x − z;  sends Δ_i and ‖Δ_i‖²
        server:  η = max(1, mean ‖Δ_i‖² / (2(‖Δ̄‖² + ε)));  z ← z + η Δ̄

    The model is the mean of the last two z, because z swings to and fro where η is large. η is
    recorded as ``server_step``. 2d + 1 floats per client and round, no prox. Made for problems in
    which the clients' minimisers have a point in common. Elsewhere Δ̄ vanishes near a solution and
    the Δ_i do not, so that η grows up to mean ‖Δ_i‖²/(2ε) there: ``epsilon`` is ε, which limits it.

    Uploads cannot be compressed: what single compressors change would look like disagreement.

    Jhunjhunwala, Wang, Joshi 2023: "FedExP: Speeding Up Federated Averaging via Extrapolation".
    """

    beta: Step = 0.1
    local_steps: int = 10
    epsilon: float = 1e-3

    solves = "f"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_step("epsilon", self.epsilon)

    def server_init(self, z: Tensor, prox: Prox) -> State:
        return {"z": z, "previous": z, "server_step": 1.0}

    def broadcast(self, server: State, t: int, rng: np.random.Generator) -> State:
        return {"z": server["z"], "beta": step_at(self.beta, t)}

    def local(self, client: State, received: State, work: Work) -> tuple[State, State]:
        move = work.descend(received["z"], received["beta"], self.local_steps) - received["z"]
        return {"move": move, "square": _squared_norm(move)}, {}

    def aggregate(self, server: State, sent: State, mean: State, share: float, prox: Prox) -> State:
        z, move = server["z"], mean["move"]
        ratio = mean["square"] / (2 * (_squared_norm(move) + self.epsilon))
        step = max(1.0, ratio.item())
        return {"z": z + step * move, "previous": z, "server_step": step}

    def model(self, server: State) -> Tensor:
        mean: Tensor = (server["z"] + server["previous"]) / 2
        return mean

    def diagnostics(self, server: State) -> dict[str, float]:
        """Return η of the last round, 1 before the first."""
        return {"server_step": server["server_step"]}


def _squared_norm(x: Tensor) -> Tensor:
    """Return ‖x‖² as a vector of length 1, or for a matrix a column with that of every row."""
    return x.square().sum(-1, keepdim=True)
