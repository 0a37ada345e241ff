"""How different the clients of a partition are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Counts = NDArray[np.int64]


def label_counts(labels: Tensor, parts: Sequence[Tensor], classes: int) -> Counts:
    """How many samples of each class (columns) each client (rows) has.

    Args:
        labels: The class of each sample, one of 0 … ``classes`` − 1.
        parts: The indices of each client's samples.
        classes: How many classes there are.
    """
    owners = np.repeat(np.arange(len(parts)), list(map(len, parts)))
    held = labels[torch.cat(list(parts))].numpy()
    cells = np.bincount(owners * classes + held, minlength=len(parts) * classes)
    return cells.reshape(len(parts), classes)


def label_skew(counts: Counts) -> float:
    """How far a client's labels are, on average, from the labels of all clients together.

    This is the mean over clients i of the total-variation distance ½ Σ_y |p_i(y) − p(y)|, where
    p_i(y) and p(y) are the shares of class y among the samples of client i and of all clients. It
    is 0 if all clients have the same labels in the same proportions, and always below 1.

    Args:
        counts: A row for each client and a column for each class, as ``label_counts`` gives them.
    """
    shares = counts / counts.sum(1, keepdims=True)
    pooled = counts.sum(0) / counts.sum()
    return float(np.abs(shares - pooled).sum(1).mean() / 2)


def size_skew(counts: Counts) -> float:
    """How different the clients' sizes are: their standard deviation over their mean.

    Args:
        counts: A row for each client and a column for each class, as ``label_counts`` gives them.
    """
    sizes = counts.sum(1)
    return float(sizes.std() / sizes.mean())
