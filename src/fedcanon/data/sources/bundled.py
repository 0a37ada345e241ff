"""Small datasets that ship with scikit-learn."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from fedcanon.data.dataset import Dataset, Split


def digits() -> Dataset:
    """Handwritten digits, 8×8 pixels in [0, 1], 10 classes; ships with scikit-learn."""
    from sklearn.datasets import load_digits  # takes more than a second to import

    images, labels = load_digits(return_X_y=True)
    return _held_out("digits", images / 16, labels)


def breast_cancer() -> Dataset:
    """Wisconsin breast cancer, 30 standardised features, 2 classes; ships with scikit-learn."""
    from sklearn.datasets import load_breast_cancer

    features, labels = load_breast_cancer(return_X_y=True)
    return _held_out("breast_cancer", (features - features.mean(0)) / features.std(0), labels)


def _held_out(name: str, inputs: NDArray[np.floating], labels: NDArray[np.integer]) -> Dataset:
    """Hold out a fifth of each class for testing, always the same one."""
    from sklearn.model_selection import train_test_split

    parts = train_test_split(inputs, labels, test_size=0.2, random_state=0, stratify=labels)
    train_x, test_x, train_y, test_y = (torch.from_numpy(np.ascontiguousarray(p)) for p in parts)
    classes = len(np.unique(labels))
    return Dataset(name, Split(train_x, train_y), Split(test_x, test_y), classes)
