"""Sums over clients in a fixed binary tree.

Floating-point sums depend on their order. Here position k of the participants is leaf k of a binary
tree, whatever the order of work: results are the same bits for any number of workers, a worker
may sum a complete subtree near its clients, and never more than log₂|S| partial sums are held.
"""

from __future__ import annotations

from torch import Tensor

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
