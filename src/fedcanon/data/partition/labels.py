"""Partitions that look at labels, or at nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcanon.data.partition.base import (
    Numbers,
    Partition,
    Parts,
    collect,
    cut,
    proportions,
    require_positive,
    top_up,
)
from fedcanon.errors import FedcanonError


@dataclass(frozen=True)
class Iid(Partition):
    """Random parts of equal size."""

    def deal(
        self, labels: Numbers, users: Numbers | None, clients: int, rng: np.random.Generator
    ) -> Parts:
        return np.array_split(rng.permutation(len(labels)), clients)


@dataclass(frozen=True)
class Dirichlet(Partition):
    """Label skew: every class is dealt out in proportions drawn from Dir(η).

    Small η gives each client few classes, large η tends to i.i.d. Clients left with fewer than
    ``MINIMUM`` samples receive some from the largest client.
    """

    eta: float

    def __post_init__(self) -> None:
        require_positive(self, "eta")

    def deal(
        self, labels: Numbers, users: Numbers | None, clients: int, rng: np.random.Generator
    ) -> Parts:
        samples, owners = [], []
        for label in np.unique(labels):
            samples.append(rng.permutation(np.flatnonzero(labels == label)))
            sizes = cut(len(samples[-1]), proportions(rng, clients, self.eta))
            owners.append(np.repeat(np.arange(clients), sizes))
        parts = collect(np.concatenate(samples), np.concatenate(owners), clients)
        return top_up([rng.permutation(part) for part in parts])


@dataclass(frozen=True)
class Quantity(Partition):
    """Quantity skew: sizes drawn from Dir(η), the labels of every client i.i.d."""

    eta: float

    def __post_init__(self) -> None:
        require_positive(self, "eta")

    def deal(
        self, labels: Numbers, users: Numbers | None, clients: int, rng: np.random.Generator
    ) -> Parts:
        sizes = cut(len(labels), proportions(rng, clients, self.eta))
        return top_up(np.split(rng.permutation(len(labels)), np.cumsum(sizes)[:-1]))


@dataclass(frozen=True)
class Shards(Partition):
    """Label skew: samples sorted by label are cut into equal shards, of which a client gets s.

    A shard no longer than the smallest class has one or two labels, so a client has at most 2s.
    """

    s: int

    def __post_init__(self) -> None:
        require_positive(self, "s")

    def deal(
        self, labels: Numbers, users: Numbers | None, clients: int, rng: np.random.Generator
    ) -> Parts:
        shards = self.s * clients
        if len(labels) < shards:
            raise FedcanonError(
                f"{len(labels)} samples are too few for {clients} clients of {self.s} shards each: "
                "take fewer of either."
            )
        samples = rng.permutation(len(labels))
        samples = samples[np.argsort(labels[samples], kind="stable")]
        sizes = [len(shard) for shard in np.array_split(samples, shards)]
        owners = rng.permutation(shards) // self.s
        return collect(samples, np.repeat(owners, sizes), clients)
