"""Whether what was decoded is what the authors published."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from fedcanon.data.dataset import Split
from fedcanon.data.sources.files import damaged


def check_labels(labels: NDArray[np.integer], classes: int, where: object) -> None:
    """Refuse labels of the file ``where`` that are not among 0 … classes − 1."""
    if len(labels) and not (labels.min() >= 0 and labels.max() < classes):
        wrong = labels[(labels < 0) | (labels >= classes)][0]
        raise damaged(where, f"it has the label {wrong}, but there are {classes} classes")


def check_official(content: bytes, sha256: str, where: object) -> None:
    """Refuse content of the file ``where`` that does not have the checksum of the official one.

    This is for files with the official number of samples; others are subsets.
    """
    if hashlib.sha256(content).hexdigest() != sha256:
        raise damaged(where, "its content is not the official one")


def subset_note(train: Split, test: Split, official: tuple[int, int]) -> str:
    """A note for subsets, and an empty one for complete datasets.

    Args:
        train: The training data at hand.
        test: The test data at hand.
        official: How many training and test samples the complete dataset has.
    """
    if (len(train), len(test)) == official:
        return ""
    return (
        f"subset: {len(train):,} of {official[0]:,} training "
        f"and {len(test):,} of {official[1]:,} test samples"
    )
