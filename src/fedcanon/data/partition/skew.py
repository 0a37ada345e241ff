"""How different the clients of a partition are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Counts = NDArray[np.int64]


def label_counts(labels: Tensor, parts: Sequence[Tensor], classes: int) -> Counts:
    """How many samples of every class (columns) every client (rows) has."""
    owners = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    held = labels.numpy()[np.concatenate([part.numpy() for part in parts])]
    cells = np.bincount(owners * classes + held, minlength=len(parts) * classes)
    return cells.reshape(len(parts), classes)


def label_skew(counts: Counts) -> float:
    """Mean total-variation distance of the clients' label distributions from the pooled one.

    0 if all clients have the same labels in the same proportions; below 1 always.
    """
    shares = counts / counts.sum(1, keepdims=True)
    pooled = counts.sum(0) / counts.sum()
    return float(np.abs(shares - pooled).sum(1).mean() / 2)


def size_skew(counts: Counts) -> float:
    """Coefficient of variation of the clients' sizes: standard deviation over mean."""
    sizes = counts.sum(1)
    return float(sizes.std() / sizes.mean())
