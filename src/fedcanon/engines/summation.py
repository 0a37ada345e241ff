"""Sums over clients in a fixed binary tree.

Floating-point sums depend on their order. Here the k-th participant is always leaf k of a binary
tree. The result therefore has the same bits for any number of workers, a worker can sum a complete
subtree by itself, and at most log₂|S| partial sums are held at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from torch import Tensor

Vectors = dict[str, Tensor]


def added(left: Vectors, right: Vectors, *, owned: bool) -> Vectors:
    """Return left + right for every name; if ``owned``, the result is written into ``left``."""
    if owned:
        return {name: vector.add_(right[name]) for name, vector in left.items()}
    return {name: vector + right[name] for name, vector in left.items()}


@dataclass
class _Subtree:
    """A partial result; if it is ``owned`` by the tree, it may be overwritten."""

    height: int
    total: Vectors
    owned: bool


class Tree:
    """Merges dictionaries of vectors in the order of a binary tree; by default it adds them."""

    def __init__(self, merge: Callable[..., Vectors] = added) -> None:
        self._merge, self._subtrees = merge, list[_Subtree]()

    def __bool__(self) -> bool:
        return bool(self._subtrees)

    def push(self, leaf: Vectors, height: int = 0, *, temporary: bool = False) -> None:
        """Add the next leaf, or the result of the next complete subtree of 2^height leaves.

        A ``temporary`` leaf may be overwritten by the caller afterwards: the tree keeps a copy.
        """
        subtree = _Subtree(height, leaf, owned=False)
        while self._subtrees and self._subtrees[-1].height == subtree.height:
            subtree = self._merged(self._subtrees.pop(), subtree)
        if temporary and not subtree.owned:
            own = {name: vector.clone() for name, vector in leaf.items()}
            subtree = _Subtree(height, own, owned=True)
        self._subtrees.append(subtree)

    def total(self) -> Vectors:
        """Return the merged result of all leaves so far."""
        subtree, *rest = reversed(self._subtrees)
        for left in rest:
            subtree = self._merged(left, subtree)
        self._subtrees = [subtree]
        return subtree.total

    def _merged(self, left: _Subtree, right: _Subtree) -> _Subtree:
        total = self._merge(left.total, right.total, owned=left.owned)
        return _Subtree(left.height + 1, total, owned=True)


def sum_of_rows(rows: Tensor) -> Tensor:
    """Sum 2^height rows of a matrix in the order of the tree."""
    while len(rows) > 1:
        rows = rows[0::2] + rows[1::2]
    return rows[0]


def subtrees(costs: Sequence[float], workers: int, smallest: int = 0) -> list[range]:
    """Cut the positions 0, 1, … into complete subtrees, which are the tasks for the workers.

    The first subtrees are large and the last small: each costs at most one worker's share of what
    remains. There are few tasks then, and all workers finish at about the same time.

    Args:
        costs: The cost of each position.
        workers: The number of workers.
        smallest: Subtrees of this height are not cut any further.
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
    """Return the largest height of a complete subtree that begins at ``start`` and fits."""
    fits = (count - start).bit_length() - 1
    aligned = (start & -start).bit_length() - 1 if start else fits
    return min(fits, aligned)


def height_of(positions: Sequence[object]) -> int:
    """Return the height of the complete subtree that has these positions as its leaves."""
    return len(positions).bit_length() - 1
