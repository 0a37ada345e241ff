"""Memory that several processes share, as a mapped file."""

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
"""Vectors begin at multiples of so many bytes, which vector instructions prefer."""

_PIECE = 2**20


class SparseFile:
    """A mapped file without a name, which takes space only where something was written.

    The file is in memory or, if ``on_disk``, in the folder for temporary files. Forked processes,
    and processes to which it is sent, see the same bytes. The system deletes it when the last of
    these processes ends, even if that is killed.
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
        """Allocate space; without this, writing to a full disk would kill the process (SIGBUS).

        Nothing may have been written there before.

        Raises:
            OSError: There is not enough space.
        """
        if size:
            getattr(os, "posix_fallocate", _write_zeros)(self._file, offset, size)

    def view(self, offset: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return a tensor on the bytes from ``offset`` on, without copying them."""
        count = math.prod(shape)
        if not count:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(self._map, dtype=dtype, count=count, offset=offset).view(shape)

    def drop_pages(self) -> None:
        """Remove the pages of the file from this process's memory; their content is kept."""
        if self._map is not None and sys.platform != "win32":
            self._map.madvise(mmap.MADV_DONTNEED)


def aligned(size: int) -> int:
    """Round a size up to a multiple of ``ALIGNMENT``."""
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
