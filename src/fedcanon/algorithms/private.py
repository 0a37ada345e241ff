"""FedCanon+ in private runs: an averaged model, and states that fade."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcanon.algorithms.base import Prox, State
from fedcanon.algorithms.fedcanon import FedCanonPlus
from fedcanon.errors import FedcanonError


@dataclass(frozen=True)
class AveragedFedCanonPlus(FedCanonPlus):
    """FedCanon+ whose model is an average, in which the noise of single rounds has less weight.

    The iterates are those of FedCanon+. From round ``average_from`` on, the model is prox_{αh} of
    the mean of the points y = z − α v̄ so far. That has more zeros than a mean of the z. None
    leaves the model as it is.
    """

    average_from: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.accelerated:
            raise FedcanonError(
                "acceleration amplifies noise: leave out algorithm.accelerated in a private run."
            )

    def server_init(self, z: Tensor, prox: Prox) -> State:
        return {**super().server_init(z, prox), "y": torch.zeros_like(z), "averaged": 0, "w": z}

    def broadcast(self, server: State, t: int, rng: np.random.Generator) -> State:
        return {**super().broadcast(server, t, rng), "t": t}

    def aggregate(self, server: State, sent: State, mean: State, share: float, prox: Prox) -> State:
        state = super().aggregate(server, sent, mean, share, prox)
        y, averaged, w = server["y"], server["averaged"], state["z"]
        if self.average_from is not None and sent["t"] >= self.average_from:
            alpha, averaged = sent["alpha"], averaged + 1
            y = torch.lerp(y, server["z"] - alpha * (server["e"] + mean["u"]), 1 / averaged)
            w = prox(y, alpha, counted=False)
        return {**state, "y": y, "averaged": averaged, "w": w}

    def model(self, server: State) -> Tensor:
        model: Tensor = server["w"]
        return model


@dataclass(frozen=True)
class FadingFedCanonPlus(AveragedFedCanonPlus):
    """FedCanon+ whose states fade, for noise on the sums of a round.

    Noise on ū stays in e, which is the mean of all v_i plus the noise of all rounds: a random walk.
    If server and clients forget the part λ of their states in every round, its length is bounded.
    A client that was absent does so when it returns. With γ = 1 − λ:

        client:  v_i ← γ^(rounds missed) v_i;  K steps x ← x − β(g_i(x) + b − v_i) from z
                 m = (z − x)/(βK) − b + v_i;  u_i = C(m − γ v_i);  v_i ← γ v_i + u_i
        server:  v̄ = γ e + ū;  z ← prox_{αh}(z − α v̄);  b = (z_prev − z)/α;  e ← γ e + (|S|/N) ū

    With λ = 0 this is FedCanon+ to the last bit.
    """

    forgetting: float = 0.02

    # The mean of the clients' states, without noise, must never be computed: when clients join or
    # leave, all begin anew.
    averages = {}

    @property
    def _remembered(self) -> float:
        return 1 - self.forgetting

    def client_init(self, z: Tensor) -> State:
        return {**super().client_init(z), "counted": 0}

    def _faded(self, client: State, sent: State) -> Tensor:
        """v_i at the beginning of the round, faded for the rounds that the client has missed."""
        v: Tensor = self._remembered ** (sent["t"] - client["counted"]) * client["v"]
        return v

    def ask(self, client: State, sent: State, *, compressed: bool) -> State:
        v = self._faded(client, sent)
        asked = super().ask({"v": v}, sent, compressed=compressed)
        return {**asked, "v": self._remembered * v} if compressed else asked

    def settle(self, client: State, sent: State, answer: State) -> tuple[State, State]:
        faded = {"v": self._remembered * self._faded(client, sent)}
        upload, state = super().settle(faded, sent, answer)
        return upload, {**state, "counted": sent["t"] + 1}

    def aggregate(self, server: State, sent: State, mean: State, share: float, prox: Prox) -> State:
        faded = {**server, "e": self._remembered * server["e"]}
        return super().aggregate(faded, sent, mean, share, prox)
