"""Datasets by name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn import datasets as bundled
from sklearn.model_selection import train_test_split

from fedcanon.data.dataset import Dataset, Split
from fedcanon.errors import FedcanonError


def data_folder() -> Path:
    """Where datasets are looked for: ``FEDCANON_DATA``, or ``~/.fedcanon/data``."""
    return Path(os.environ.get("FEDCANON_DATA") or Path.home() / ".fedcanon" / "data")


def digits() -> Dataset:
    """Handwritten digits, 8×8 pixels in [0, 1], 10 classes; ships with scikit-learn."""
    images, labels = bundled.load_digits(return_X_y=True)
    return _held_out("digits", images / 16, labels)


def breast_cancer() -> Dataset:
    """Wisconsin breast cancer, 30 standardised features, 2 classes; ships with scikit-learn."""
    features, labels = bundled.load_breast_cancer(return_X_y=True)
    return _held_out("breast_cancer", (features - features.mean(0)) / features.std(0), labels)


def _held_out(name: str, inputs: NDArray[np.floating], labels: NDArray[np.integer]) -> Dataset:
    """Hold out a fifth of each class for testing, always the same one."""
    parts = train_test_split(inputs, labels, test_size=0.2, random_state=0, stratify=labels)
    train_x, test_x, train_y, test_y = (torch.from_numpy(np.ascontiguousarray(p)) for p in parts)
    classes = len(np.unique(labels))
    return Dataset(name, Split(train_x, train_y), Split(test_x, test_y), classes)


def a9a() -> Dataset:
    """A9A (LIBSVM, from UCI Adult): 123 sparse binary features, 2 classes."""

    def read(name: str) -> Split:
        path = next((p for p in (folder / name, folder / f"{name}.gz") if p.is_file()), None)
        if path is None:
            raise FedcanonError(
                f"the dataset a9a is not there: put the LIBSVM files a9a and a9a.t (or .gz) into "
                f"{folder}, or point FEDCANON_DATA at the folder that holds a9a/."
            )
        features, labels = bundled.load_svmlight_file(str(path), n_features=123)
        return Split(sparse.csr_array(features), torch.from_numpy((labels > 0).astype(np.int64)))

    folder = data_folder() / "a9a"
    return Dataset("a9a", read("a9a"), read("a9a.t"), classes=2)


DATASETS: dict[str, Callable[[], Dataset]] = {
    "digits": digits,
    "breast_cancer": breast_cancer,
    "a9a": a9a,
}
"""Every dataset by its name in a configuration."""
