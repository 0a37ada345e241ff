"""The contract of a partition, and what all of them share."""

from __future__ import annotations

import dataclasses
import heapq
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcanon.data.dataset import Split
from fedcanon.errors import FedcanonError

Numbers = NDArray[np.integer]
Parts = list[NDArray[np.int64]]

MINIMUM = 2
"""Samples that every client keeps, however skewed the partition."""


class Partition(ABC):
    """A rule that gives every sample to exactly one client.

    Partitions are frozen dataclasses with at most one field, the number behind the colon of a
    description such as "dirichlet:0.2". A new one writes ``deal``; one that changes inputs also
    overrides ``distort``.
    """

    @abstractmethod
    def deal(
        self, labels: Numbers, users: Numbers | None, clients: int, rng: np.random.Generator
    ) -> Parts:
        """The samples of every client, from the label and the user of each sample.

        There are at least ``clients × MINIMUM`` samples, and every client gets ``MINIMUM``.
        """

    def parts(
        self, labels: Tensor, clients: int, rng: np.random.Generator, users: Tensor | None = None
    ) -> list[Tensor]:
        """``deal`` for tensors, once there are samples enough."""
        if len(labels) < clients * MINIMUM:
            raise FedcanonError(
                f"{len(labels)} samples are too few for {clients} clients "
                f"with at least {MINIMUM} each."
            )
        by_user = None if users is None else users.numpy()
        return [torch.from_numpy(part) for part in self.deal(labels.numpy(), by_user, clients, rng)]

    def distort(self, train: Split, parts: list[Tensor], rng: np.random.Generator) -> Split:
        """The training data as the clients see them: unchanged, unless features are skewed.

        ``parts`` are those of this partition; ``rng`` is the generator that drew them.
        """
        return train

    @classmethod
    def parse(cls, name: str, argument: str) -> Self:
        """The partition described as ``name:argument``."""
        make: Callable[..., Self] = cls
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]
        if not fields:
            if argument:
                raise FedcanonError(f"the partition '{name}' is written without ':{argument}'.")
            return make()
        kind, example = (int, "2") if fields[0].type == "int" else (float, "0.2")
        try:
            return make(kind(argument))
        except ValueError:
            number = "whole number" if kind is int else "number"
            raise FedcanonError(
                f"the partition '{name}' needs a {number} after a colon, such as {name}:{example}."
            ) from None


def require_positive(partition: Partition, field: str) -> None:
    """Refuse a parameter that is not finite and above 0."""
    number = getattr(partition, field)
    if not (math.isfinite(number) and number > 0):
        name = type(partition).__name__.lower()
        raise FedcanonError(f"the partition '{name}' needs a finite {field} above 0, not {number}.")


def proportions(rng: np.random.Generator, clients: int, eta: float) -> NDArray[np.float64]:
    """One draw from Dir(η, …, η): the clients' shares of something, which sum to 1."""
    # Above 10¹² all shares are equal, and NumPy's sum of gamma variates would overflow in the end.
    return rng.dirichlet(np.full(clients, min(eta, 1e12)))


def cut(total: int, shares: NDArray[np.float64]) -> Numbers:
    """``total`` as a sum of whole numbers in these proportions, to within rounding."""
    ends = (np.cumsum(shares)[:-1] * total).round().astype(np.int64)
    return np.diff(ends, prepend=0, append=total)


def collect(samples: NDArray[np.int64], owners: Numbers, clients: int) -> Parts:
    """Every client's samples, in the order in which they are given."""
    ends = np.cumsum(np.bincount(owners, minlength=clients))[:-1]
    return np.split(samples[np.argsort(owners, kind="stable")], ends)


def top_up(parts: Parts) -> Parts:
    """Give every client ``MINIMUM`` samples, taken from the client that is then the largest."""
    given = np.zeros(len(parts), dtype=np.int64)
    largest = [(-len(part), client) for client, part in enumerate(parts)]
    heapq.heapify(largest)
    for poor in range(len(parts)):
        while (missing := MINIMUM - len(parts[poor])) > 0:
            size, rich = -largest[0][0], largest[0][1]
            taken = min(missing, max(1, (size - MINIMUM) // 2))
            gifts = parts[rich][given[rich] : given[rich] + taken]
            parts[poor] = np.concatenate([parts[poor], gifts])
            given[rich] += taken
            heapq.heapreplace(largest, (taken - size, rich))
    return [part[start:] for part, start in zip(parts, given, strict=True)]
