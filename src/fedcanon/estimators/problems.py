"""From arrays in scikit-learn's manner to a problem over clients."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from torch import nn

from fedcanon.errors import FedcanonError
from fedcanon.objectives import FlatModule, ModuleObjective, Objective, Problem
from fedcanon.objectives.linear import Features
from fedcanon.objectives.losses import Loss
from fedcanon.randomness import Purpose, torch_seed
from fedcanon.runs.named import penalty_parameters

if TYPE_CHECKING:
    import pandas as pd

Rows = NDArray[np.int64]


class InvalidDataError(FedcanonError, ValueError):
    """Data that cannot be learnt from; scikit-learn expects a ValueError."""


def dense(X: Features) -> NDArray[np.floating]:
    """The features as an array."""
    return X if isinstance(X, np.ndarray) else X.toarray()


def require_kappa(name: str) -> None:
    """Refuse a penalty that is given by its name alone, but has no κ."""
    if "kappa" not in penalty_parameters(name):
        raise FedcanonError(
            f"the penalty '{name}' has no kappa: give it with its own parameters, "
            f'penalty={{"name": "{name}", …}}.'
        )


def labels_of(y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The classes in their order, and the number of each sample's class.

    Raises:
        ValueError: There are fewer than two, or they are no classes.
    """
    check_classification_targets(y)
    classes, labels = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise InvalidDataError(
            f"there is only one class, {classes[0]}: a classifier needs two or more."
        )
    return classes, labels


def rows_of_clients(groups: Any, X: Features | pd.DataFrame) -> list[Rows]:
    """The rows of each client.

    Args:
        groups: The client of each sample; without it there is one, which has all of them.
        X: The features, a row for each sample.

    Raises:
        ValueError: There is not exactly one group for each sample.
    """
    if groups is None:
        return [np.arange(X.shape[0])]
    import pandas as pd  # takes half a second, which a fit without groups does not need

    groups = column_or_1d(groups)
    check_consistent_length(X, groups)
    numbers, _ = pd.factorize(groups, sort=True)
    for row in np.flatnonzero(numbers < 0)[:1]:
        raise InvalidDataError(f"the group of sample {row} is missing: every sample needs one.")
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.cumsum(np.bincount(numbers))[:-1])


def linear_problem(clients: Sequence[Objective], dtype: np.dtype[Any]) -> Problem:
    """Clients with a gradient in closed form, weighed by their samples, started at 0.

    Args:
        clients: The objective of each client.
        dtype: The precision of the model.
    """
    start = torch.from_numpy(np.zeros(clients[0].layout.size, dtype))
    return Problem(clients, start, [client.samples for client in clients])


def network_problem(
    X: Features,
    y: NDArray[Any],
    clients: Sequence[Rows],
    *,
    hidden: Sequence[int],
    outputs: int,
    bias: bool,
    loss: Loss,
    seed: int,
) -> Problem:
    """A network with ReLU between its layers, clients weighed by their samples.

    It is started at PyTorch's random initialisation; a single layer, whose problem is convex, at 0.

    Args:
        X: The features, a row for each sample; sparse ones are made dense.
        y: The label or target of each sample, as the loss takes it.
        clients: The rows of each client.
        hidden: The sizes of the hidden layers.
        outputs: The number of outputs.
        bias: Whether layers have biases.
        loss: The loss of outputs and targets.
        seed: It decides the random start.
    """
    inputs = torch.tensor(dense(X))
    module = _network([inputs.shape[1], *hidden, outputs], bias, seed).to(inputs.dtype)
    flat, targets = FlatModule(module), torch.tensor(y)
    return Problem(
        [ModuleObjective(flat, loss, inputs, targets, torch.from_numpy(rows)) for rows in clients],
        flat.vector if hidden else torch.zeros_like(flat.vector),
        [len(rows) for rows in clients],
    )


def _network(sizes: Sequence[int], bias: bool, seed: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(seed, Purpose.MODEL))
        for inputs, outputs in pairwise(sizes):
            layers += [nn.ReLU(), nn.Linear(inputs, outputs, bias=bias)]
    return nn.Sequential(*layers[1:])
