"""Rules that combine the uploads of a round.

A ``Streaming`` rule merges uploads in a fixed binary tree, in the worker processes where possible,
and holds at most log₂|S| partial results. Any other rule gets every single upload.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fedcanon.algorithms import Algorithm, Links, Mixed
from fedcanon.engines.summation import Tree, Vectors, added, height_of, sum_of_rows
from fedcanon.engines.traffic import copied
from fedcanon.errors import FedcanonError


class Aggregation(ABC):
    """A rule that combines the uploads of a round.

    ``leaf`` is applied to every upload, in the process of the client. ``finish`` gets the results
    on the server and returns the ``mean`` for ``Algorithm.aggregate``.
    """

    def check(self, weights: Sequence[float]) -> None:  # noqa: B027  # most rules take all weights
        """Raise a ``FedcanonError`` if the rule cannot be used with these client weights."""

    def simplest(self) -> Aggregation:
        """Return a rule with the same results that may cost less; by default the rule itself."""
        return self

    def leaf(self, upload: Vectors, weight: float) -> Vectors:
        """Return one client's part of the result; ``weight`` is its p_i before normalisation."""
        return upload

    @abstractmethod
    def finish(self, parts: Sequence[Vectors], weights: Sequence[float]) -> Vectors:
        """Combine the parts of a round.

        Args:
            parts: The part of every participant in increasing order of clients; a single merged
                part for a ``Streaming`` rule.
            weights: The weight p_i of every participant before normalisation, in the same order.
        """

    def share(self, weights: Sequence[float], total: float) -> float:
        """Return the participants' part of the weight of all clients.

        Args:
            weights: The weights of the participants.
            total: The weight of all clients.
        """
        # fsum is exact in any order, so that the share of all clients is 1 to the last bit.
        return math.fsum(weights) / total

    def copies(self, client: int) -> int:
        """Return to how many others a client sends its upload: one server, or its neighbours."""
        return 1


class Streaming(Aggregation):
    """A rule whose parts can be merged pair by pair, so that ``finish`` gets a single part."""

    @abstractmethod
    def merge(self, left: Vectors, right: Vectors, *, owned: bool) -> Vectors:
        """Merge two parts into one; if ``owned``, ``left`` may be overwritten."""

    @abstractmethod
    def merge_rows(self, uploads: Vectors, weights: Sequence[float]) -> Vectors:
        """Return the merged part of 2^k clients, whose uploads are the rows of matrices."""


@dataclass(frozen=True)
class Mean(Streaming):
    """The weighted mean Σ_S p_i upload_i / Σ_S p_i over the participants S."""

    def leaf(self, upload: Vectors, weight: float) -> Vectors:
        return upload if weight == 1 else {name: weight * v for name, v in upload.items()}

    def merge(self, left: Vectors, right: Vectors, *, owned: bool) -> Vectors:
        return added(left, right, owned=owned)

    def merge_rows(self, uploads: Vectors, weights: Sequence[float]) -> Vectors:
        return {
            name: sum_of_rows(matrix.new_tensor(weights)[:, None] * matrix)
            for name, matrix in uploads.items()
        }

    def finish(self, parts: Sequence[Vectors], weights: Sequence[float]) -> Vectors:
        [total] = parts
        taken = math.fsum(weights)
        return {name: vector / taken for name, vector in total.items()}


@dataclass(frozen=True)
class Mixing(Aggregation):
    """The means of a decentralised method: row i of the result is Σ_j W_ij upload_j."""

    links: Links

    def check(self, weights: Sequence[float]) -> None:
        if len(set(weights)) > 1:
            raise FedcanonError(
                "a decentralised method averages over neighbours and cannot weigh clients "
                'differently: use clients.weights = "uniform".'
            )

    def finish(self, parts: Sequence[Vectors], weights: Sequence[float]) -> Vectors:
        rows = {name: torch.stack([part[name] for part in parts]) for name in parts[0]}
        # In double precision: if rows of W summed to 1 only nearly, all nodes would drift.
        return {
            name: (self.links.weights.to(stacked.device) @ stacked.double()).to(stacked.dtype)
            for name, stacked in rows.items()
        }

    def copies(self, client: int) -> int:
        return self.links.degrees[client]


def make_aggregation(
    algorithm: Algorithm, weights: Sequence[float], given: Aggregation | None = None
) -> Aggregation:
    """Return the rule of a run: the ``given`` one, or else the one of the algorithm.

    Raises:
        FedcanonError: The rule does not fit the algorithm or the weights of the clients.
    """
    rule = given
    if isinstance(algorithm, Mixed):
        if given is not None:
            raise FedcanonError(
                f"{type(algorithm).__name__} averages over neighbours: it takes no other rule."
            )
        rule = Mixing(algorithm.mixing(len(weights)))
    rule = (rule or Mean()).simplest()
    rule.check(weights)
    return rule


class Accumulator:
    """Collects the parts of a round in increasing order of clients; merges them if possible."""

    def __init__(self, rule: Aggregation) -> None:
        self._rule, self._single = rule, list[Vectors]()
        self._tree = Tree(rule.merge) if isinstance(rule, Streaming) else None

    def push(self, upload: Vectors, weight: float) -> None:
        """Add one client's upload."""
        self.extend([self._rule.leaf(upload, weight)])

    def push_rows(self, uploads: Vectors, weights: Sequence[float]) -> None:
        """Add the uploads of the next 2^k clients, which are the rows of matrices."""
        if isinstance(self._rule, Streaming):
            self.extend([self._rule.merge_rows(uploads, weights)], height_of(weights))
            return
        for k, weight in enumerate(weights):
            self.push({name: matrix[k] for name, matrix in uploads.items()}, weight)

    def extend(self, parts: Sequence[Vectors], height: int = 0, *, temporary: bool = False) -> None:
        """Add the parts of the next 2^height clients: a single merged one if the rule streams.

        ``temporary`` parts may be overwritten by the caller afterwards.
        """
        if self._tree is not None:
            [part] = parts
            self._tree.push(part, height, temporary=temporary)
        else:
            self._single.extend(copied(part) if temporary else part for part in parts)

    def parts(self) -> list[Vectors]:
        """Return the parts for ``Aggregation.finish``; none if nobody has taken part."""
        if self._tree is None:
            return self._single
        return [self._tree.total()] if self._tree else []
