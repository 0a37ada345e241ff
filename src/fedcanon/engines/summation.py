"""Sums over clients in a fixed binary tree.

Floating-point sums depend on their order. Here position k of the participants is leaf k of a binary
tree, whatever the order of work: results are the same bits for any number of workers, a worker
may sum a complete subtree near its clients, and never more than log₂|S| partial sums are held.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fedcanon.algorithms import Links

Vectors = dict[str, Tensor]


class TreeSum:
    """Adds dictionaries of vectors, pushed in the order of their positions."""

    def __init__(self) -> None:
        self._subtrees: list[tuple[int, Vectors]] = []

    def push(self, leaf: Vectors, height: int = 0) -> None:
        """Add the next leaf, or the sum of the next complete subtree of 2^height leaves."""
        while self._subtrees and self._subtrees[-1][0] == height:
            leaf = _add(self._subtrees.pop()[1], leaf)
            height += 1
        self._subtrees.append((height, leaf))

    def total(self) -> Vectors:
        """The sum of everything pushed."""
        (_, total), *rest = reversed(self._subtrees)
        for _, subtree in rest:
            total = _add(subtree, total)
        return total


def _add(left: Vectors, right: Vectors) -> Vectors:
    return {name: left[name] + right[name] for name in left}


class Average:
    """Σ w_i upload_i / Σ w_i over the participants, for one server."""

    def __init__(self, weights: Sequence[float]) -> None:
        self._weights, self._taken, self._sum = weights, list[float](), TreeSum()

    def push(self, client: int, upload: Vectors) -> None:
        """Add the upload of the next participant."""
        weight = self._weights[client]
        self._taken.append(weight)
        self._sum.push(upload if weight == 1 else {k: weight * v for k, v in upload.items()})

    def mean(self) -> Vectors:
        """The weighted mean of everything pushed."""
        # fsum is exact in any order, so that the share of all clients is 1 to the last bit.
        taken = math.fsum(self._taken)
        return {name: total / taken for name, total in self._sum.total().items()}


class Mixing:
    """Σ_j W_ij upload_j for every node i, as the rows of a matrix; all clients take part."""

    def __init__(self, links: Links) -> None:
        self._links, self._uploads = links, list[Vectors]()

    def push(self, client: int, upload: Vectors) -> None:
        """Add the upload of the next client."""
        self._uploads.append(upload)

    def mean(self) -> Vectors:
        """One row of averages for each node."""
        stacked = {
            name: torch.stack([upload[name] for upload in self._uploads])
            for name in self._uploads[0]
        }
        # In double precision: rows of W that sum to 1 only nearly would let all nodes drift.
        weights = self._links.weights
        return {
            name: (weights.to(rows.device) @ rows.double()).to(rows.dtype)
            for name, rows in stacked.items()
        }
