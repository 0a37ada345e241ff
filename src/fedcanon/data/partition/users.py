"""Partitions that keep the samples of a user together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from fedcanon.data.partition.base import MINIMUM, Graded, Numbers, Partition, Parts, collect, spread
from fedcanon.errors import FedcanonError


@dataclass(frozen=True)
class Users(Partition):
    """Natural: one client for each user of the dataset, in the order of their numbers."""

    def deal(self, labels: Numbers, users: Numbers | None, clients: int, rng: Generator) -> Parts:
        owners, counts = _by_user(users)
        if clients != len(counts):
            raise FedcanonError(
                f"the partition 'users' makes one client of each user: "
                f"the number of clients must be {len(counts)}, not {clients}."
            )
        if (small := int((counts < MINIMUM).sum())) > 0:
            raise FedcanonError(
                f"{small} of {clients} users have fewer than {MINIMUM} samples: "
                f"use writers:η with fewer clients, which puts users together."
            )
        return collect(np.arange(len(owners)), owners, clients)


@dataclass(frozen=True)
class Writers(Graded):
    """Skew over users: whole users are dealt out in proportions drawn from Dir(η).

    Every client first gets one user with at least ``MINIMUM`` samples. The remaining users go to
    the clients in numbers proportional to one draw from Dir(η).

    Args:
        eta: The concentration η > 0. A small one leaves most users to a few clients; with a large
            one all clients have nearly as many users.
    """

    eta: float

    def deal(self, labels: Numbers, users: Numbers | None, clients: int, rng: Generator) -> Parts:
        numbers, counts = _by_user(users)
        large = rng.permutation(np.flatnonzero(counts >= MINIMUM))
        if len(large) < clients:
            raise FedcanonError(
                f"{len(large)} users with at least {MINIMUM} samples are too few for "
                f"{clients} clients that keep users whole: take fewer clients."
            )
        rest = rng.permutation(np.setdiff1d(np.arange(len(counts)), large[:clients]))
        owners = np.empty(len(counts), dtype=np.int64)
        owners[large[:clients]] = np.arange(clients)
        owners[rest] = spread(len(rest), clients, self.eta, rng)
        parts = collect(np.arange(len(numbers)), owners[numbers], clients)
        return [rng.permutation(part) for part in parts]


def _by_user(users: Numbers | None) -> tuple[Numbers, Numbers]:
    """The user of every sample, numbered from 0, and how many samples each user has."""
    if users is None:
        raise FedcanonError(
            "this dataset does not know its users: use iid or dirichlet:η, or name the column that "
            "says whom a sample comes from (client of a table, user of the hub)."
        )
    _, numbers, counts = np.unique(users, return_inverse=True, return_counts=True)
    return numbers, counts
