"""Partitions that look at labels, or at nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from fedcanon.data.partition.base import Graded, Numbers, Partition, Parts, collect, spread, top_up
from fedcanon.errors import FedcanonError


@dataclass(frozen=True)
class Iid(Partition):
    """Random parts of equal size."""

    def deal(self, labels: Numbers, users: Numbers | None, clients: int, rng: Generator) -> Parts:
        return np.array_split(rng.permutation(len(labels)), clients)


@dataclass(frozen=True)
class Dirichlet(Graded):
    """Label skew: every class is dealt out in proportions drawn from Dir(η).

    Clients left with fewer than ``MINIMUM`` samples receive some from the largest client.

    Args:
        eta: The concentration η > 0. A small one gives each client few classes; with a large one
            all clients have nearly the same mix of classes.
    """

    eta: float

    def deal(self, labels: Numbers, users: Numbers | None, clients: int, rng: Generator) -> Parts:
        samples, owners = [], []
        for label in np.unique(labels):
            samples.append(rng.permutation(np.flatnonzero(labels == label)))
            owners.append(spread(len(samples[-1]), clients, self.eta, rng))
        parts = collect(np.concatenate(samples), np.concatenate(owners), clients)
        return top_up([rng.permutation(part) for part in parts])


@dataclass(frozen=True)
class Quantity(Graded):
    """Quantity skew: sizes drawn from Dir(η), the labels of every client i.i.d.

    Clients left with fewer than ``MINIMUM`` samples receive some from the largest client.

    Args:
        eta: The concentration η > 0. A small one leaves most samples to a few clients; with a large
            one all clients are nearly of the same size.
    """

    eta: float

    def deal(self, labels: Numbers, users: Numbers | None, clients: int, rng: Generator) -> Parts:
        owners = spread(len(labels), clients, self.eta, rng)
        return top_up(collect(rng.permutation(len(labels)), owners, clients))


@dataclass(frozen=True)
class Shards(Graded):
    """Label skew: samples sorted by label are cut into equal shards, of which a client gets s.

    A shard no longer than the smallest class has one or two labels, so a client has at most 2s.

    Args:
        s: How many shards each client gets.
    """

    s: int

    def deal(self, labels: Numbers, users: Numbers | None, clients: int, rng: Generator) -> Parts:
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
