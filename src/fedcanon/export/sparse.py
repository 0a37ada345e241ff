"""Stores sparse weights as compressed sparse rows (CSR) inside a safetensors file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from scipy import sparse
from torch import Tensor

from fedcanon.errors import FedcanonError, first_line
from fedcanon.runs.model_file import write_tensors

SHAPES = "csr_shapes"
"""The entry of the file's metadata with the shapes of all weights that are stored as CSR."""


def save_sparse(tensors: dict[str, Tensor], path: str | Path) -> None:
    """Write tensors by their names, weights as CSR wherever that takes fewer bytes.

    A weight is stored as a matrix with a row for each output, in the three tensors NAME.values,
    NAME.column_indices and NAME.row_pointers.

    Args:
        tensors: The state dict of a network.
        path: The file.
    """
    written: dict[str, Tensor] = {}
    shapes: dict[str, list[int]] = {}
    for name, tensor in tensors.items():
        parts = _compressed(tensor) if tensor.ndim >= 2 and tensor.is_floating_point() else {}
        if parts and sum(part.nbytes for part in parts.values()) < tensor.nbytes:
            written.update({f"{name}.{part}": stored for part, stored in parts.items()})
            shapes[name] = list(tensor.shape)
        else:
            written[name] = tensor
    write_tensors(written, Path(path), {SHAPES: json.dumps(shapes)})


def load_sparse(path: str | Path) -> dict[str, Tensor]:
    """Read a file of ``fedcanon export --format sparse`` as a state dict of dense tensors.

    All numbers are exact; only the sign of zeros is lost.

    Raises:
        FedcanonError: The file cannot be read, is not of this format or is damaged.
    """
    try:
        with safe_open(path, "pt") as file:
            shapes = json.loads((file.metadata() or {})[SHAPES])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        for name, shape in shapes.items():
            values, columns, rows = (tensors.pop(f"{name}.{part}").numpy() for part in _PARTS)
            size = (shape[0], int(np.prod(shape[1:])))
            indices = columns.astype(np.int64), rows.astype(np.int64)
            matrix = sparse.csr_array((values, *indices), shape=size)
            matrix.check_format(full_check=True)
            tensors[name] = torch.from_numpy(matrix.toarray()).view(shape)
    except KeyError:
        raise FedcanonError(
            f"{path} was not written by 'fedcanon export --format sparse'."
        ) from None
    except (OSError, SafetensorError, ValueError) as error:
        raise FedcanonError(f"cannot read {path}: {first_line(error)}.") from None
    return tensors


_PARTS = ("values", "column_indices", "row_pointers")


def _compressed(tensor: Tensor) -> dict[str, Tensor]:
    matrix = sparse.csr_array(tensor.flatten(1).numpy())
    arrays = (matrix.data, _small(matrix.indices), _small(matrix.indptr))
    return {part: torch.from_numpy(array) for part, array in zip(_PARTS, arrays, strict=True)}


def _small(indices: np.ndarray) -> np.ndarray:
    """Convert indices to the smallest type that can hold them."""
    return indices.astype(np.min_scalar_type(int(indices.max(initial=0))))
