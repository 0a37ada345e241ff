"""Memory that several processes share."""

from __future__ import annotations

import math
import mmap
import os
import sys
import tempfile
import weakref
from multiprocessing import reduction
from typing import Any

import torch
from torch import Tensor

from fedcanon.errors import FedcanonError

ALIGNMENT = 64
"""Where vectors begin: at multiples of what vector instructions like."""

_PIECE = 2**20


class SparseFile:
    """A mapped file without a name that takes space only where it is written.

    It is in memory or, ``on_disk``, in the folder for temporary files. Processes that are forked
    or to which it is sent see the same bytes. It vanishes with the last of them, however that ends.
    """

    def __init__(self, size: int, *, on_disk: bool = False) -> None:
        if hasattr(os, "memfd_create") and not on_disk:
            file = os.memfd_create("fedcanon")
        else:
            with tempfile.TemporaryFile() as temporary:
                file = os.dup(temporary.fileno())
        os.ftruncate(file, size)
        self._open(file, size)

    def _open(self, file: int, size: int) -> None:
        self._file, self.size = file, size
        self._map = mmap.mmap(file, size) if size else None
        weakref.finalize(self, os.close, file)

    def __reduce__(self) -> tuple[Any, ...]:
        if sys.platform != "win32":
            return _reopened, (reduction.DupFd(self._file), self.size)
        raise FedcanonError(
            "Windows cannot hand files to worker processes: use the Windows Subsystem for Linux."
        )

    def reserve(self, offset: int, size: int) -> None:
        """Make sure that there is space: a full disk would else be found by a deadly signal.

        Nothing may have been written there before.
        """
        if size:
            getattr(os, "posix_fallocate", _write_zeros)(self._file, offset, size)

    def view(self, offset: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A tensor that lies here."""
        count = math.prod(shape)
        if not count:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(self._map, dtype=dtype, count=count, offset=offset).view(shape)

    def let_go(self) -> None:
        """Keep no page of a file on disk in this process's memory; their content stays."""
        if self._map is not None and sys.platform != "win32":
            self._map.madvise(mmap.MADV_DONTNEED)


def aligned(size: int) -> int:
    """The size, rounded up to where the next vector may begin."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def _write_zeros(file: int, offset: int, size: int) -> None:
    """Take space by writing, where the system has no call for it, as macOS."""
    os.lseek(file, offset, os.SEEK_SET)
    while size:
        size -= os.write(file, bytes(min(size, _PIECE)))


def _reopened(duplicate: Any, size: int) -> SparseFile:
    file = SparseFile.__new__(SparseFile)
    file._open(duplicate.detach(), size)
    return file
