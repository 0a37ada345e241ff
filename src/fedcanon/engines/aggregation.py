"""How the uploads of a round become one.

A rule that streams merges uploads in a fixed binary tree, near the clients where it can, and never
holds more than log₂|S| partial results. A rule that does not stream sees every single upload.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fedcanon.algorithms import Algorithm, Links, Mixed
from fedcanon.engines.summation import Tree, Vectors, added, sum_of_rows
from fedcanon.engines.traffic import copied
from fedcanon.errors import FedcanonError


class Aggregation(ABC):
    """What the server makes of the uploads of a round.

    ``leaf`` is applied to every upload where it is made; ``finish`` gets the results on the server,
    in the order of the participants, and returns what ``Algorithm.aggregate`` sees as ``mean``.
    """

    def check(self, weights: Sequence[float]) -> None:  # noqa: B027  # most rules take all weights
        """Refuse weights of clients that the rule cannot honour."""

    def leaf(self, upload: Vectors, weight: float) -> Vectors:
        """One client's part of the result; ``weight`` is its p_i before normalisation."""
        return upload

    @abstractmethod
    def finish(self, parts: Sequence[Vectors], weights: Sequence[float]) -> Vectors:
        """The result, from the parts of all participants and their weights."""

    def copies(self, client: int) -> int:
        """To how many others a client sends its upload: one server, or its neighbours."""
        return 1


class Streaming(Aggregation):
    """A rule whose parts can be merged two by two, so that ``finish`` gets a single one."""

    @abstractmethod
    def merge(self, left: Vectors, right: Vectors, *, owned: bool) -> Vectors:
        """One part from two; ``left`` may be written to where it is ``owned``."""

    @abstractmethod
    def merge_rows(self, uploads: Vectors, weights: Sequence[float]) -> Vectors:
        """The merged leaves of 2^k clients, whose uploads are the rows of matrices."""


@dataclass(frozen=True)
class Mean(Streaming):
    """The weighted mean Σ_S p_i upload_i / Σ_S p_i: what nearly every method uses."""

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
    """One mean for each node of a network: row i of the result is Σ_j W_ij upload_j."""

    links: Links

    def check(self, weights: Sequence[float]) -> None:
        if len(set(weights)) > 1:
            raise FedcanonError(
                "a decentralised method averages over neighbours and cannot weigh clients "
                'differently: use clients.weights = "uniform".'
            )

    def finish(self, parts: Sequence[Vectors], weights: Sequence[float]) -> Vectors:
        rows = {name: torch.stack([part[name] for part in parts]) for name in parts[0]}
        # In double precision: rows of W that sum to 1 only nearly would let all nodes drift.
        return {
            name: (self.links.weights.to(stacked.device) @ stacked.double()).to(stacked.dtype)
            for name, stacked in rows.items()
        }

    def copies(self, client: int) -> int:
        return self.links.degrees[client]


def aggregation_of(
    algorithm: Algorithm, weights: Sequence[float], given: Aggregation | None = None
) -> Aggregation:
    """The rule of a run over clients with these weights: the one given, or the algorithm's own."""
    rule = given
    if isinstance(algorithm, Mixed):
        if given is not None:
            raise FedcanonError(
                f"{type(algorithm).__name__} averages over neighbours: it takes no other rule."
            )
        rule = Mixing(algorithm.mixing(len(weights)))
    rule = rule or Mean()
    rule.check(weights)
    return rule


class Parts:
    """The parts of a round as they come, in the order of the participants."""

    def __init__(self, rule: Aggregation) -> None:
        self._rule, self._single = rule, list[Vectors]()
        self._tree = Tree(rule.merge) if isinstance(rule, Streaming) else None

    def push(self, upload: Vectors, weight: float) -> None:
        """Add one client's upload."""
        self.extend([self._rule.leaf(upload, weight)])

    def push_rows(self, uploads: Vectors, weights: Sequence[float]) -> None:
        """Add the uploads of 2^k clients, or of the last ones, as the rows of matrices."""
        if isinstance(self._rule, Streaming):
            height = len(weights).bit_length() - 1
            self.extend([self._rule.merge_rows(uploads, weights)], height)
            return
        for k, weight in enumerate(weights):
            self.push({name: matrix[k] for name, matrix in uploads.items()}, weight)

    def extend(self, parts: Sequence[Vectors], height: int = 0, *, lent: bool = False) -> None:
        """Add the parts of the next clients: the merged one of 2^height of them, or each by itself.

        What is ``lent`` may change after this call.
        """
        if self._tree is not None:
            [part] = parts
            self._tree.push(part, height, lent=lent)
        else:
            self._single.extend(copied(part) if lent else part for part in parts)

    def all(self) -> list[Vectors]:
        """What ``finish`` gets."""
        return self._single if self._tree is None else [self._tree.total()]
