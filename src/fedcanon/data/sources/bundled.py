"""Small datasets that ship with scikit-learn. A fifth of each class is held out for testing."""

from __future__ import annotations

from fedcanon.data.dataset import Dataset, held_out


def digits() -> Dataset:
    """Handwritten digits, 8×8 pixels in [0, 1], 10 classes; ships with scikit-learn."""
    from sklearn.datasets import load_digits  # takes more than a second to import

    images, labels = load_digits(return_X_y=True)
    return Dataset("digits", *held_out(images / 16, labels, strata=labels), classes=10)


def breast_cancer() -> Dataset:
    """Wisconsin breast cancer, 30 standardised features, 2 classes; ships with scikit-learn."""
    from sklearn.datasets import load_breast_cancer

    features, labels = load_breast_cancer(return_X_y=True)
    features = (features - features.mean(0)) / features.std(0)
    return Dataset("breast_cancer", *held_out(features, labels, strata=labels), classes=2)
