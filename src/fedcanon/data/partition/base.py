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
from numpy.random import Generator
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
    def deal(self, labels: Numbers, users: Numbers | None, clients: int, rng: Generator) -> Parts:
        """The samples of every client: an array of indices for each.

        Args:
            labels: The class of each sample.
            users: The user whom each sample comes from, where the dataset knows it.
            clients: How many clients there are. ``labels`` has at least ``MINIMUM`` samples for
                each of them, and each must be given that many.
            rng: The generator to draw from.
        """

    def parts(
        self, labels: Tensor, clients: int, rng: Generator, users: Tensor | None = None
    ) -> list[Tensor]:
        """What ``deal`` gives, for tensors.

        Raises:
            FedcanonError: There are fewer than ``MINIMUM`` samples for each client.
        """
        if len(labels) < clients * MINIMUM:
            raise FedcanonError(
                f"{len(labels)} samples are too few for {clients} clients "
                f"with at least {MINIMUM} each."
            )
        by_user = None if users is None else users.numpy()
        dealt = self.deal(labels.numpy(), by_user, clients, rng)
        # Views of one tensor are made several times as fast as a million tensors.
        together = torch.from_numpy(np.concatenate(dealt))
        return list(torch.split(together, list(map(len, dealt))))

    def distort(self, train: Split, parts: list[Tensor], rng: Generator) -> Split:
        """The training data as the clients see them: unchanged, unless features are skewed.

        Args:
            train: The training data of all clients.
            parts: The samples of each client, as this partition dealt them.
            rng: The generator that drew them.
        """
        return train

    @classmethod
    def parse(cls, name: str, argument: str) -> Self:
        """The partition that is described as ``name:argument``.

        Raises:
            FedcanonError: The argument is not what the partition's field needs.
        """
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


class Graded(Partition):
    """A partition whose one field says how far clients differ, and is finite and above 0."""

    def __post_init__(self) -> None:
        for field, number in vars(self).items():
            if not (math.isfinite(number) and number > 0):
                raise FedcanonError(
                    f"the partition '{type(self).__name__.lower()}' needs a finite {field} "
                    f"above 0, not {number}."
                )


def spread(total: int, clients: int, eta: float, rng: Generator) -> Numbers:
    """The owner of each of ``total`` things, in a row that is cut into a piece for each client.

    The lengths of the pieces are, to within rounding, in proportions drawn from Dir(η, …, η).
    """
    # Above 10¹² all shares are equal, and NumPy's sum of gamma variates would overflow in the end.
    shares = rng.dirichlet(np.full(clients, min(eta, 1e12)))
    ends = (np.cumsum(shares)[:-1] * total).round().astype(np.int64)
    return np.repeat(np.arange(clients), np.diff(ends, prepend=0, append=total))


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


def held_out_of_each(
    parts: list[Tensor], share: float, rng: Generator
) -> tuple[list[Tensor], Tensor]:
    """Take a share of every client's samples away, but leave ``MINIMUM`` of them.

    Args:
        parts: The indices of every client's samples.
        share: The share to take.
        rng: The generator to draw from.

    Returns:
        What is left of every part, and the indices of all samples that were taken.

    Raises:
        FedcanonError: No client has enough samples to give one away.
    """
    kept, held = [], []
    for part in parts:
        order = torch.from_numpy(rng.permutation(len(part)))
        count = max(0, min(int(share * len(part)), len(part) - MINIMUM))
        held.append(part[order[:count]])
        kept.append(part[order[count:].sort().values])
    if not any(map(len, held)):
        raise FedcanonError(
            f"no client has enough samples to hold {share:.0%} of them out: use fewer clients, or "
            "a larger share."
        )
    return kept, torch.cat(held)
