"""Sums over clients in a fixed binary tree.

Floating-point sums depend on their order. Here position k of the participants is leaf k of a binary
tree, whatever the order of work: results are the same bits for any number of workers, a worker
may sum a complete subtree near its clients, and never more than log₂|S| partial sums are held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from fedcanon.algorithms import Links

Vectors = dict[str, Tensor]


@dataclass
class _Subtree:
    """A partial sum; one that is ``ours`` may be written to."""

    height: int
    total: Vectors
    ours: bool

    def __add__(self, right: _Subtree) -> _Subtree:
        left, other = self.total, right.total
        if self.ours:
            total = {name: vector.add_(other[name]) for name, vector in left.items()}
        else:
            total = {name: vector + other[name] for name, vector in left.items()}
        return _Subtree(self.height + 1, total, ours=True)


class TreeSum:
    """Adds dictionaries of vectors, pushed in the order of their positions."""

    def __init__(self) -> None:
        self._subtrees: list[_Subtree] = []

    def push(self, leaf: Vectors, height: int = 0, *, lent: bool = False) -> None:
        """Add the next leaf, or the sum of the next complete subtree of 2^height leaves.

        What is ``lent`` may change after this call.
        """
        subtree = _Subtree(height, leaf, ours=False)
        while self._subtrees and self._subtrees[-1].height == subtree.height:
            subtree = self._subtrees.pop() + subtree
        if lent and not subtree.ours:
            own = {name: vector.clone() for name, vector in leaf.items()}
            subtree = _Subtree(height, own, ours=True)
        self._subtrees.append(subtree)

    def total(self) -> Vectors:
        """The sum of everything pushed."""
        subtree, *rest = reversed(self._subtrees)
        for left in rest:
            subtree = left + subtree
        self._subtrees = [subtree]
        return subtree.total


def sum_of_rows(rows: Tensor) -> Tensor:
    """The sum of 2^height rows, in the order of the tree."""
    while len(rows) > 1:
        rows = rows[0::2] + rows[1::2]
    return rows[0]


def subtrees(costs: Sequence[float], workers: int, smallest: int = 0) -> list[range]:
    """Cut the positions, each with its cost, into complete subtrees for some workers.

    The first are large and the last small, each at most a worker's share of what is left, so that
    there are few of them and all workers end together. One of 2^``smallest`` positions is cut no
    further.
    """
    spent = list(accumulate(costs, initial=0.0))
    found, start = list[range](), 0
    while start < len(costs):
        height, share = _largest_height(start, len(costs)), (spent[-1] - spent[start]) / workers
        while height > smallest and spent[start + (1 << height)] - spent[start] > share:
            height -= 1
        found.append(range(start, start + (1 << height)))
        start = found[-1].stop
    return found


def _largest_height(start: int, count: int) -> int:
    """Of a complete subtree that begins at ``start`` and ends within ``count``."""
    fits = (count - start).bit_length() - 1
    aligned = (start & -start).bit_length() - 1 if start else fits
    return min(fits, aligned)


def height_of(positions: Sequence[object]) -> int:
    """The height of a complete subtree with so many leaves."""
    return len(positions).bit_length() - 1


def mixed(links: Links, uploads: Sequence[Vectors]) -> Vectors:
    """Σ_j W_ij upload_j for every node i, as the rows of a matrix."""
    rows = {name: torch.stack([upload[name] for upload in uploads]) for name in uploads[0]}
    # In double precision: rows of W that sum to 1 only nearly would let all nodes drift.
    weights = links.weights
    return {
        name: (weights.to(stacked.device) @ stacked.double()).to(stacked.dtype)
        for name, stacked in rows.items()
    }
