"""The smooth part f of a composite problem: its clients, its starting point, its test."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from fedcanon.errors import FedcanonError
from fedcanon.files import Count
from fedcanon.layout import Layout
from fedcanon.objectives.base import Objective
from fedcanon.objectives.mean_check import require_means
from fedcanon.objectives.module import ModuleClients, ModuleTest

Test = Callable[[Tensor], dict[str, float]]


def no_test(x: Tensor) -> dict[str, float]:
    """Measure nothing: for problems without test data."""
    return {}


@dataclass(frozen=True)
class DataSummary:
    """What a reader of results wants to know of the data behind a problem.

    Args:
        name: The name of the dataset.
        shape: The shape of one input.
        classes: How many classes there are.
        label_counts: How many samples of each class (columns) each client (rows) has; empty if the
            clients do not tell their labels.
        samples: How many samples each client has, if ``label_counts`` is empty.
        features: The name of each number of an input; this and all names are empty if not known.
        means: What was subtracted from each of these numbers before training.
        deviations: What each was divided by after that.
        class_names: The name of each class.
        client_names: The name of each client.
    """

    name: str
    shape: tuple[Count, ...]
    classes: Count
    label_counts: list[list[Count]]
    samples: list[Count] = field(default_factory=list)
    features: list[str] = field(default_factory=list)
    means: list[float] = field(default_factory=list)
    deviations: list[float] = field(default_factory=list)
    class_names: list[str] = field(default_factory=list)
    client_names: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """The training samples of all clients."""
        return sum(self.samples or map(sum, self.label_counts))


MEASURES = {"accuracy": (0.0, 1.0), "test_loss": (-math.inf, math.inf)}
"""The measures that a test may return, with the least and the largest value of each."""


@dataclass(frozen=True)
class Problem:
    """f(x) = Σ_i p_i f_i(x), the weighted mean of the clients' losses.

    Args:
        clients: The f_i.
        start: The vector to start from.
        weights: A positive number for each client, in whose proportions the p_i are; by default all
            are equal.
        test: Maps a model to measures on held-out data, such as ``{"accuracy": 0.93}``.
        data: A summary of the data, for reports.

    Raises:
        FedcanonError: There is no client, weights or the start do not fit the clients, or the loss
            of a network is no mean over samples and not declared so.
    """

    clients: Sequence[Objective]
    start: Tensor
    weights: Sequence[float] = ()
    test: Test = field(default=no_test)
    data: DataSummary | None = None
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
        require_means(self.clients)

    def to(self, device: torch.device) -> Problem:
        """The same problem with data and model on another device.

        Raises:
            FedcanonError: The clients do not share one network.
        """
        if not (isinstance(self.clients, ModuleClients) and isinstance(self.test, ModuleTest)):
            raise FedcanonError(
                "only problems whose clients share one network can be sent to devices: use "
                'device = "cpu".'
            )
        clients = self.clients.to(device)
        test = self.test.of(clients.flat)
        return replace(self, clients=clients, start=self.start.to(device), test=test)

    @property
    def layout(self) -> Layout:
        """Names and shapes inside the flat vector."""
        return self.clients[0].layout

    @property
    def buffers(self) -> Tensor:
        """The model's live normalisation statistics (shared by all clients of one process)."""
        return self.clients[0].buffers

    @cached_property
    def samples(self) -> Sequence[int]:
        """How many samples each client has."""
        if isinstance(self.clients, ModuleClients):  # of which each one would have to be made
            return self.clients.sizes
        return [client.samples for client in self.clients]

    def losses(self, x: Tensor) -> list[float]:
        """f_i(x) of every client."""
        return [client.value(x) for client in self.clients]

    def losses_and_gradient(self, x: Tensor) -> tuple[list[float], Tensor]:
        """f_i(x) of every client, and ∇f(x), exact."""
        losses, gradient = list[float](), torch.zeros_like(x)
        for weight, client in zip(self.weights, self.clients, strict=True):
            loss, client_gradient = client.value_and_gradient(x)
            losses.append(loss)
            gradient.add_(client_gradient, alpha=weight / self.total_weight)
        return losses, gradient

    def mean(self, losses: Sequence[float]) -> float:
        """Σ_i p_i losses_i, the weighted mean over the clients."""
        total = self.total_weight
        return sum(w / total * loss for w, loss in zip(self.weights, losses, strict=True))

    def value(self, x: Tensor) -> float:
        """f(x)."""
        return self.mean(self.losses(x))

    def value_and_gradient(self, x: Tensor) -> tuple[float, Tensor]:
        """f(x) and ∇f(x), exact."""
        losses, gradient = self.losses_and_gradient(x)
        return self.mean(losses), gradient
