"""What a dataset is, once loaded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

Inputs = Tensor | sparse.csr_array


@dataclass(frozen=True)
class Split:
    """Samples and their class labels 0 … classes − 1.

    ``users`` numbers the person or place each sample comes from, where the dataset knows it.
    """

    inputs: Inputs
    targets: Tensor
    users: Tensor | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def take(self, rows: Tensor) -> Split:
        """These samples, in this order."""
        inputs = self.inputs[rows if isinstance(self.inputs, Tensor) else rows.numpy()]
        return Split(inputs, self.targets[rows], None if self.users is None else self.users[rows])

    def tensors(self, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
        """Inputs (made dense) and labels for a network."""
        dense = self.inputs if isinstance(self.inputs, Tensor) else self.inputs.toarray()
        return torch.as_tensor(dense).to(device, dtype), self.targets.to(device)

    def features(self, precision: str) -> NDArray[np.floating] | sparse.csr_array:
        """Inputs as a NumPy matrix, or as the CSR matrix they are, with one row for each sample."""
        if isinstance(self.inputs, Tensor):
            return self.inputs.flatten(1).numpy().astype(precision)
        return sparse.csr_array(self.inputs.astype(precision))


@dataclass(frozen=True)
class Dataset:
    """A classification dataset: training data to spread over clients, and test data.

    ``note`` says what a reader of results must know, such as "subset: 300 writers"; it is empty for
    a complete dataset.
    """

    name: str
    train: Split
    test: Split
    classes: int
    note: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.train.inputs.shape[1:])
