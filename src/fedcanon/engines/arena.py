"""Messages between processes: tensors go through shared memory, everything else through a pipe."""

from __future__ import annotations

import io
import pickle
from typing import Any

import torch
from torch import Tensor

from fedcanon.engines.memory import SparseFile, aligned
from fedcanon.errors import FedcanonError
from fedcanon.units import MIB


class Arena:
    """Shared memory in which every sending process has a region of its own."""

    def __init__(self, regions: int, region_size: int) -> None:
        self._region_size = aligned(region_size)
        self._file = SparseFile(regions * self._region_size)
        self._position = self._end = 0

    def begin(self, region: int) -> None:
        """Write the next messages into this region from its start, over earlier messages."""
        self._position = region * self._region_size
        self._end = self._position + self._region_size

    def dump(self, message: Any) -> bytes:
        """Copy the tensors of a message into the region and return the bytes to be sent."""
        buffer = io.BytesIO()
        _Pickler(self, buffer).dump(message)
        return buffer.getvalue()

    def load(self, sent: bytes) -> Any:
        """Return the message that ``dump`` wrote; its tensors are views of the sender's region."""
        return _Unpickler(self._file, io.BytesIO(sent)).load()

    def put(self, tensor: Tensor) -> tuple[int, tuple[int, ...], torch.dtype]:
        """Copy a tensor into the region and return its offset, shape and type."""
        offset, size = self._position, tensor.numel() * tensor.element_size()
        if offset + size > self._end:
            raise FedcanonError(
                f"a message is larger than {self._region_size / MIB:,.0f} MiB, more than any "
                'method sends: use engine.name = "serial".'
            )
        self._position += aligned(size)
        shape = tuple(tensor.shape)
        self._file.view(offset, shape, tensor.dtype).copy_(tensor.detach())
        return offset, shape, tensor.dtype


class _Pickler(pickle.Pickler):
    def __init__(self, arena: Arena, buffer: io.BytesIO) -> None:
        super().__init__(buffer, protocol=pickle.HIGHEST_PROTOCOL)
        self._arena = arena

    def persistent_id(self, obj: Any) -> Any:
        return self._arena.put(obj) if isinstance(obj, Tensor) else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: SparseFile, buffer: io.BytesIO) -> None:
        super().__init__(buffer)
        self._file = file

    def persistent_load(self, pid: Any) -> Tensor:
        return self._file.view(*pid)
