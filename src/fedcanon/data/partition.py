"""How a dataset is spread over clients."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcanon.errors import FedcanonError

Labels = NDArray[np.integer]
Parts = list[NDArray[np.int64]]

MINIMUM = 2
"""Samples that every client keeps, however skewed the partition."""


def iid(labels: Labels, clients: int, rng: np.random.Generator) -> Parts:
    """A random split into equal parts."""
    return list(np.array_split(rng.permutation(len(labels)), clients))


def dirichlet(labels: Labels, clients: int, rng: np.random.Generator, eta: float) -> Parts:
    """Label skew: every class is spread over the clients in proportions drawn from Dir(η).

    Small η gives each client few classes, large η tends to i.i.d. Clients left with fewer than
    ``MINIMUM`` samples receive some from the largest client.
    """
    if not eta > 0:
        raise FedcanonError(f"a Dirichlet partition needs a concentration above 0, not {eta:g}.")
    parts: list[list[NDArray[np.int64]]] = [[] for _ in range(clients)]
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        cuts = np.cumsum(rng.dirichlet(np.full(clients, eta)))[:-1] * len(members)
        for part, piece in zip(parts, np.split(members, cuts.round().astype(int)), strict=True):
            part.append(piece)
    return _top_up([rng.permutation(np.concatenate(part)) for part in parts])


def _top_up(parts: Parts) -> Parts:
    """Move samples from the largest part until every part has ``MINIMUM``."""
    for poor in range(len(parts)):
        while (missing := MINIMUM - len(parts[poor])) > 0:
            rich = int(np.argmax([len(part) for part in parts]))
            taken = min(missing, max(1, (len(parts[rich]) - MINIMUM) // 2))
            parts[poor] = np.concatenate([parts[poor], parts[rich][:taken]])
            parts[rich] = parts[rich][taken:]
    return parts


PARTITIONS: dict[str, Callable[..., Parts]] = {"iid": iid, "dirichlet": dirichlet}


def partition(spec: str, labels: Tensor, clients: int, rng: np.random.Generator) -> list[Tensor]:
    """Sample indices of every client, by a description such as "iid" or "dirichlet:0.2"."""
    name, _, argument = spec.partition(":")
    if name not in PARTITIONS:
        raise FedcanonError(
            f"there is no partition called '{name}': use iid, or dirichlet:η such as dirichlet:0.2."
        )
    try:
        arguments = [float(argument)] if argument else []
    except ValueError:
        raise FedcanonError(
            f"the partition '{spec}' needs a number after the colon, such as dirichlet:0.2."
        ) from None
    if (name == "dirichlet") != bool(arguments):
        raise FedcanonError(f"write the partition as iid or dirichlet:η, not '{spec}'.")
    if len(labels) < clients * MINIMUM:
        raise FedcanonError(
            f"{len(labels)} samples are too few for {clients} clients with at least {MINIMUM} each."
        )
    parts = PARTITIONS[name](labels.numpy(), clients, rng, *arguments)
    return [torch.from_numpy(part) for part in parts]
