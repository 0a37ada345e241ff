"""The smooth part f of a composite problem: its clients, its starting point, its test."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedcanon.errors import FedcanonError
from fedcanon.layout import Layout
from fedcanon.objectives.base import Objective

Test = Callable[[Tensor], dict[str, float]]


def no_test(x: Tensor) -> dict[str, float]:
    """Measure nothing: for problems without test data."""
    return {}


@dataclass(frozen=True)
class Problem:
    """f(x) = Σ_i p_i f_i(x) over ``clients``, started at the vector ``start``.

    ``weights`` are the p_i before normalisation; all equal by default. ``test`` maps a model to
    measures on held-out data, such as ``{"accuracy": 0.93}``; ``about`` names the data.
    """

    clients: Sequence[Objective]
    start: Tensor
    weights: Sequence[float] = ()
    test: Test = field(default=no_test)
    about: str = ""
    total_weight: float = field(init=False)
    start_buffers: Tensor = field(init=False)

    def __post_init__(self) -> None:
        if not len(self.clients):
            raise FedcanonError("a federated problem needs at least one client.")
        weights = [float(w) for w in self.weights] or [1.0] * len(self.clients)
        if len(weights) != len(self.clients) or not all(0 < w < math.inf for w in weights):
            raise FedcanonError("every client needs one positive, finite weight.")
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "total_weight", math.fsum(weights))
        # Copies, since both may be the live memory of a module that will train.
        object.__setattr__(self, "start", self.start.clone())
        object.__setattr__(self, "start_buffers", self.buffers.clone())
        if self.start.shape != (self.layout.size,):
            raise FedcanonError(
                f"the starting point has shape {tuple(self.start.shape)}, but the model has "
                f"{self.layout.size} parameters."
            )

    @property
    def layout(self) -> Layout:
        """Names and shapes inside the flat vector."""
        return self.clients[0].layout

    @property
    def buffers(self) -> Tensor:
        """The model's live normalisation statistics (shared by all clients of one process)."""
        return self.clients[0].buffers

    def value(self, x: Tensor) -> float:
        """f(x)."""
        total = self.total_weight
        return sum(w / total * c.value(x) for w, c in zip(self.weights, self.clients, strict=True))

    def value_and_gradient(self, x: Tensor) -> tuple[float, Tensor]:
        """f(x) and ∇f(x), exact."""
        total = self.total_weight
        value, gradient = 0.0, torch.zeros_like(x)
        for weight, client in zip(self.weights, self.clients, strict=True):
            client_value, client_gradient = client.value_and_gradient(x)
            value += weight / total * client_value
            gradient.add_(client_gradient, alpha=weight / total)
        return value, gradient
