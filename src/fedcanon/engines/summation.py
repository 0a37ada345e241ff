"""Sums over clients in a fixed binary tree.

Floating-point sums depend on their order. Here position k of the participants is leaf k of a binary
tree, whatever the order of work: results are the same bits for any number of workers, a worker
may sum a complete subtree near its clients, and never more than log₂|S| partial sums are held.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

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


def sum_of_rows(rows: Tensor) -> Tensor:
    """The sum of 2^height rows, in the order of the tree."""
    while len(rows) > 1:
        rows = rows[0::2] + rows[1::2]
    return rows[0]


def subtrees(costs: Sequence[float], most: float, smallest: int = 0) -> list[range]:
    """Cut the positions, each with its cost, into complete subtrees that cost at most ``most``.

    One of 2^``smallest`` positions is cut no further, whatever it costs.
    """
    spent = list(accumulate(costs, initial=0.0))
    found, start = list[range](), 0
    while start < len(costs):
        height = _largest_height(start, len(costs))
        while height > smallest and spent[start + (1 << height)] - spent[start] > most:
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
