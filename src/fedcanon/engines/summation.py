"""Sums over clients in a fixed binary tree.

Floating-point sums depend on their order. Here position k of the participants is leaf k of a binary
tree, whatever the order of work: results are the same bits for any number of workers, a worker
may sum a complete subtree near its clients, and never more than log₂|S| partial sums are held.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from torch import Tensor

Vectors = dict[str, Tensor]


def added(left: Vectors, right: Vectors, *, owned: bool) -> Vectors:
    """left + right, name by name; into ``left`` where it is ``owned``."""
    if owned:
        return {name: vector.add_(right[name]) for name, vector in left.items()}
    return {name: vector + right[name] for name, vector in left.items()}


@dataclass
class _Subtree:
    """A partial result; one that is ``owned`` may be written to."""

    height: int
    total: Vectors
    owned: bool


class Tree:
    """Merges dictionaries of vectors, pushed in the order of their positions; adds by default."""

    def __init__(self, merge: Callable[..., Vectors] = added) -> None:
        self._merge, self._subtrees = merge, list[_Subtree]()

    def push(self, leaf: Vectors, height: int = 0, *, lent: bool = False) -> None:
        """Add the next leaf, or the result of the next complete subtree of 2^height leaves.

        What is ``lent`` may change after this call.
        """
        subtree = _Subtree(height, leaf, owned=False)
        while self._subtrees and self._subtrees[-1].height == subtree.height:
            subtree = self._merged(self._subtrees.pop(), subtree)
        if lent and not subtree.owned:
            own = {name: vector.clone() for name, vector in leaf.items()}
            subtree = _Subtree(height, own, owned=True)
        self._subtrees.append(subtree)

    def total(self) -> Vectors:
        """The result of everything pushed."""
        subtree, *rest = reversed(self._subtrees)
        for left in rest:
            subtree = self._merged(left, subtree)
        self._subtrees = [subtree]
        return subtree.total

    def _merged(self, left: _Subtree, right: _Subtree) -> _Subtree:
        total = self._merge(left.total, right.total, owned=left.owned)
        return _Subtree(left.height + 1, total, owned=True)


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
