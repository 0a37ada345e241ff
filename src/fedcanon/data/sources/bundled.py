"""Small datasets that need no download. A fifth of each class is held out for testing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from fedcanon.data.dataset import Dataset, Split, held_out

_DIGITS = Path(__file__).with_name("digits.npz")
"""The digits of scikit-learn as ``held_out`` splits them: the first run does not wait for both.

They are the test set of E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI
Machine Learning Repository, 1998, https://doi.org/10.24432/C50P49, under CC BY 4.0.
"""


def digits() -> Dataset:
    """Handwritten digits, 8×8 pixels in [0, 1], 10 classes; ships with fedcanon."""
    with np.load(_DIGITS) as kept:
        train, test = (
            Split(
                torch.from_numpy(kept[f"{part}_images"] / 16),
                torch.from_numpy(kept[f"{part}_labels"].astype(np.int64)),
            )
            for part in ("train", "test")
        )
    return Dataset("digits", train, test, classes=10)


def breast_cancer() -> Dataset:
    """Wisconsin breast cancer, 30 standardised features, 2 classes; ships with scikit-learn."""
    from sklearn.datasets import load_breast_cancer  # takes more than a second to import

    features, labels = load_breast_cancer(return_X_y=True)
    features = (features - features.mean(0)) / features.std(0)
    return Dataset("breast_cancer", *held_out(features, labels, strata=labels), classes=2)
