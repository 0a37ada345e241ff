"""Pickles from strangers: only arrays and basic types are read, so that none can run code."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np

from fedcanon.data.sources.files import damaged

_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy._core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no dataset needs")
        return _ALLOWED[module, name]


def unpickle(content: bytes, where: object) -> Any:
    """The value that a file holds; strings of Python 2 become bytes.

    Args:
        content: The pickle.
        where: The file, for messages.

    Raises:
        FedcanonError: The pickle is damaged, or asks for more than arrays and basic types.
    """
    try:
        return _Unpickler(io.BytesIO(content), encoding="bytes").load()
    except Exception as problem:  # a damaged pickle raises nearly anything
        raise damaged(where, problem) from problem
