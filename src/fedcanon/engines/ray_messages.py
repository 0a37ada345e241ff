"""Messages as bytes and NumPy arrays: Ray's object store lends arrays, but would copy tensors."""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from ray.cloudpickle import CloudPickler
from torch import Tensor, nn

from fedcanon.engines.memory import ALIGNMENT
from fedcanon.errors import FedcanonError


class PackedMessage(NamedTuple):
    """A message without its tensors, and what is in them."""

    content: bytes
    arrays: list[np.ndarray[Any, Any]]


def pack(message: Any, *, lend: bool = False, lent: Sequence[Tensor] = ()) -> PackedMessage:
    """Take a message apart.

    Who unpacks it gets tensors of its own, unless they are ``lent`` or ``lend`` says that all are:
    these may be memory of others that must not be written to.
    """
    buffer, arrays = io.BytesIO(), list[np.ndarray[Any, Any]]()
    try:
        _Pickler(buffer, arrays, None if lend else lent).dump(message)  # type: ignore[no-untyped-call]
    except (TypeError, pickle.PicklingError) as error:
        raise FedcanonError(
            f'this cannot be sent to other machines, as engine.name = "ray" must: {error}.'
        ) from error
    return PackedMessage(buffer.getvalue(), arrays)


def unpack(packed: PackedMessage) -> Any:
    """Put a message together again."""
    return _Unpickler(packed).load()


class _Pickler(CloudPickler):
    def __init__(
        self,
        buffer: io.BytesIO,
        arrays: list[np.ndarray[Any, Any]],
        lent: Sequence[Tensor] | None,
    ) -> None:
        super().__init__(buffer, pickle.HIGHEST_PROTOCOL)  # type: ignore[no-untyped-call]
        self._arrays = arrays
        self._lent = None if lent is None else {id(tensor) for tensor in lent}
        self._places: dict[int, int] = {}

    def persistent_id(self, obj: Any) -> Any:
        if type(obj) not in (Tensor, nn.Parameter):
            return None
        if id(obj) not in self._places:  # a parameter that two layers share stays one
            self._places[id(obj)] = len(self._arrays)
            self._arrays.append(obj.detach().numpy())
        is_lent = self._lent is None or id(obj) in self._lent
        return self._places[id(obj)], type(obj), obj.requires_grad, is_lent


class _Unpickler(pickle.Unpickler):
    def __init__(self, packed: PackedMessage) -> None:
        super().__init__(io.BytesIO(packed.content))
        self._arrays = packed.arrays
        self._tensors: dict[int, Tensor] = {}

    def persistent_load(self, pid: Any) -> Tensor:
        place, kind, requires_grad, is_lent = pid
        if place not in self._tensors:
            tensor = _tensor(self._arrays[place], is_lent)
            if kind is nn.Parameter:
                tensor = nn.Parameter(tensor, requires_grad)
            self._tensors[place] = tensor.requires_grad_(requires_grad)
        return self._tensors[place]


def _tensor(array: np.ndarray[Any, Any], is_lent: bool) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        tensor = torch.from_numpy(array)
    # Where a vector begins can decide in which order it is added up: everywhere as PyTorch does.
    return tensor if is_lent and tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()
