"""What a dataset is, once loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

Inputs = Tensor | sparse.csr_array


@dataclass(frozen=True)
class Split:
    """Samples with their classes.

    Args:
        inputs: A tensor or a sparse matrix with one row for each sample.
        targets: The class of each sample, a number from 0 to the number of classes − 1.
        users: The number of the person or place that each sample comes from, or None where the
            dataset does not know it.
    """

    inputs: Inputs
    targets: Tensor
    users: Tensor | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def take(self, rows: Tensor) -> Split:
        """The samples whose indices are ``rows``, in this order."""
        inputs = self.inputs[rows if isinstance(self.inputs, Tensor) else rows.numpy()]
        return Split(inputs, self.targets[rows], None if self.users is None else self.users[rows])

    def tensors(self, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
        """Inputs and classes for a network; a sparse matrix of inputs becomes dense.

        Args:
            dtype: The precision that the inputs are to have.
            device: Where both are to be.
        """
        dense = self.inputs if isinstance(self.inputs, Tensor) else self.inputs.toarray()
        return torch.as_tensor(dense).to(device, dtype), self.targets.to(device)

    def features(self, precision: str) -> NDArray[np.floating] | sparse.csr_array:
        """Inputs as a NumPy matrix, or as the CSR matrix they are, with one row for each sample.

        Args:
            precision: The type of the numbers, "float32" or "float64".
        """
        if isinstance(self.inputs, Tensor):
            return self.inputs.flatten(1).numpy().astype(precision)
        return sparse.csr_array(self.inputs.astype(precision))


@dataclass(frozen=True)
class Names:
    """What the numbers of a dataset stand for; empty where nobody has said it.

    Args:
        features: The name of each number of an input.
        means: What was subtracted from each of them.
        deviations: What each was divided by after that.
        classes: The name of each class.
        users: The name of each user.
    """

    features: tuple[str, ...] = ()
    means: tuple[float, ...] = ()
    deviations: tuple[float, ...] = ()
    classes: tuple[str, ...] = ()
    users: tuple[str, ...] = ()


@dataclass(frozen=True)
class Dataset:
    """A classification dataset: training data to spread over clients, and test data.

    Args:
        name: What it is called in results.
        train: The training data.
        test: The test data.
        classes: How many classes there are.
        note: What a reader of results must know, such as "subset: 300 writers"; empty for a
            complete dataset.
        names: What features, classes and users are called.
    """

    name: str
    train: Split
    test: Split
    classes: int
    note: str = ""
    names: Names = Names()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.train.inputs.shape[1:])


def held_out(*arrays: Any, strata: Any, share: float = 0.2, seed: int = 0) -> tuple[Split, Split]:
    """Training and test samples, with as large a share of each stratum in both.

    Args:
        arrays: Inputs, labels and, where they are known, users: a row or number for each sample.
        strata: The class or user of each sample, in whose proportions the samples are split.
        share: The share of the test samples.
        seed: What the choice of samples is drawn from.
    """
    from sklearn.model_selection import train_test_split  # takes more than a second to import

    parts = train_test_split(*arrays, test_size=share, random_state=seed, stratify=strata)
    tensors = [torch.from_numpy(np.ascontiguousarray(part)) for part in parts]
    return Split(*tensors[::2]), Split(*tensors[1::2])
