"""Pairs of arrays as a dataset."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from fedcanon.data.dataset import Dataset, Inputs
from fedcanon.data.own.samples import Samples, build
from fedcanon.errors import FedcanonError


def from_arrays(
    train: tuple[Any, Any],
    test: tuple[Any, Any] | None = None,
    *,
    users: Iterable[Hashable] | None = None,
    holdout: float = 0.2,
    seed: int = 0,
    name: str = "arrays",
) -> Dataset:
    """Your own arrays: pairs of inputs and labels.

    Inputs are tensors, NumPy arrays or SciPy sparse matrices: (N, d) features or (N, channels,
    height, width) images. They are taken as they are, so scale them first. Labels are of any
    hashable kind; sorted, they become the classes 0, 1, ….

    Args:
        train: Inputs and labels of the training data.
        test: Inputs and labels of the test data. Without them a share of the training data is held
            out, class by class where every class has enough samples.
        users: Whom each training sample comes from.
        holdout: The share of the training data to hold out, between 0 and 1.
        seed: What the choice of these samples is drawn from.
        name: What the dataset is called in results.

    Raises:
        FedcanonError: Inputs are not finite numbers, or inputs, labels and users do not fit
            together.
    """
    return build(
        name,
        Samples("training", numbers(train[0], "training"), _listed(train[1]), _listed(users)),
        None if test is None else Samples("test", numbers(test[0], "test"), _listed(test[1])),
        holdout=holdout,
        seed=seed,
    )


def _listed(values: Any) -> Any:
    """The values as a list of Python objects; None stays None."""
    if values is None:
        return None
    values = values.tolist() if hasattr(values, "tolist") else values
    return [v.item() if isinstance(v, Tensor | np.generic) else v for v in values]


def numbers(inputs: Any, part: str) -> Inputs:
    """The inputs in float32, dense or CSR.

    Args:
        inputs: A tensor, an array, a sparse matrix, or what NumPy can make an array of.
        part: "training" or "test", for messages.

    Raises:
        FedcanonError: They are not numbers, not finite, or neither features nor images.
    """
    if hasattr(inputs, "tocsr"):
        matrix = sparse.csr_array(inputs.tocsr().astype(np.float32))
        entries = matrix.tocoo()
        for entry in np.flatnonzero(~np.isfinite(entries.data))[:1]:
            raise FedcanonError(_not_finite(part, entries.row[entry], entries.col[entry]))
        return matrix
    array = inputs.detach().cpu().numpy() if isinstance(inputs, Tensor) else np.asarray(inputs)
    if array.dtype.kind not in "biuf":
        raise FedcanonError(
            f"the {part} inputs are not numbers ({array.dtype}): encode them first, or use "
            "from_table, which does."
        )
    if array.ndim not in (2, 4):
        raise FedcanonError(
            f"the {part} inputs have the shape {array.shape}: give (samples, features), or "
            "(samples, channels, height, width) for images."
        )
    with np.errstate(over="ignore"):
        array = np.array(array, dtype=np.float32, order="C")
    for row, *column in np.argwhere(~np.isfinite(array))[:1]:
        raise FedcanonError(_not_finite(part, row, ", ".join(str(c) for c in column)))
    return torch.from_numpy(array)


def _not_finite(part: str, row: int, column: int | str) -> str:
    return (
        f"the {part} inputs are NaN or infinite in row {row}, column {column}: fill such values or "
        "leave their rows out."
    )
