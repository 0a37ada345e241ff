"""Messages as bytes and NumPy arrays, which Ray's object store shares; it would copy tensors."""

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
    """A pickled message without its tensors, and the tensors as arrays."""

    content: bytes
    arrays: list[np.ndarray[Any, Any]]


def pack(
    message: Any, *, all_read_only: bool = False, read_only: Sequence[Tensor] = ()
) -> PackedMessage:
    """Separate a message from its tensors.

    Args:
        message: Any object that can be pickled.
        all_read_only: Whether the receiver will write to none of the tensors.
        read_only: Tensors to which the receiver will not write. They are not copied; their memory
            is shared by all processes of a node.

    Raises:
        FedcanonError: The message has a part that cannot be pickled.
    """
    buffer, arrays = io.BytesIO(), list[np.ndarray[Any, Any]]()
    try:
        _Pickler(buffer, arrays, None if all_read_only else read_only).dump(message)  # type: ignore[no-untyped-call]
    except (TypeError, pickle.PicklingError) as error:
        raise FedcanonError(
            f'this cannot be sent to other machines, as engine.name = "ray" must: {error}.'
        ) from error
    return PackedMessage(buffer.getvalue(), arrays)


def unpack(packed: PackedMessage) -> Any:
    """Return the message that ``pack`` separated from its tensors."""
    return _Unpickler(packed).load()


class _Pickler(CloudPickler):
    def __init__(
        self,
        buffer: io.BytesIO,
        arrays: list[np.ndarray[Any, Any]],
        read_only: Sequence[Tensor] | None,
    ) -> None:
        super().__init__(buffer, pickle.HIGHEST_PROTOCOL)  # type: ignore[no-untyped-call]
        self._arrays = arrays
        self._read_only = None if read_only is None else {id(tensor) for tensor in read_only}
        self._places: dict[int, int] = {}

    def persistent_id(self, obj: Any) -> Any:
        if type(obj) not in (Tensor, nn.Parameter):
            return None
        if id(obj) not in self._places:  # a parameter that two layers share is sent once
            self._places[id(obj)] = len(self._arrays)
            self._arrays.append(obj.detach().numpy())
        read_only = self._read_only is None or id(obj) in self._read_only
        return self._places[id(obj)], type(obj), obj.requires_grad, read_only


class _Unpickler(pickle.Unpickler):
    def __init__(self, packed: PackedMessage) -> None:
        super().__init__(io.BytesIO(packed.content))
        self._arrays = packed.arrays
        self._tensors: dict[int, Tensor] = {}

    def persistent_load(self, pid: Any) -> Tensor:
        place, kind, requires_grad, read_only = pid
        if place not in self._tensors:
            tensor = _tensor(self._arrays[place], read_only)
            if kind is nn.Parameter:
                tensor = nn.Parameter(tensor, requires_grad)
            self._tensors[place] = tensor.requires_grad_(requires_grad)
        return self._tensors[place]


def _tensor(array: np.ndarray[Any, Any], read_only: bool) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        tensor = torch.from_numpy(array)
    # The alignment of a vector can change the order in which it is summed, and so the result's
    # last bits: use the alignment of PyTorch everywhere.
    return tensor if read_only and tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()
