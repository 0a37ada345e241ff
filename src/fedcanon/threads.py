"""How many threads PyTorch and the products of compiled code use."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch


class _Limits(threading.local):
    """Whether the calling thread is limited already."""

    here = False


_LIMITS, _LOCK = _Limits(), threading.Lock()
_limited = 0
"""How many threads of this program are limited."""
_usual = 1
"""How many threads PyTorch had before the first of them was."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit PyTorch to one thread, and give the others back afterwards.

    One thread gives the same bits on every machine and does not stall where cores are busy: on a
    loaded machine, small steps on several threads can take fifty times as long.

    Threads of a program may do this at the same time. Each sets the number for itself, but a new
    thread begins with the number that was set last, so that what it finds may be the limit of
    another one: all give back what the first has found.
    """
    global _limited, _usual
    if _LIMITS.here:
        yield
        return
    with _LOCK:
        found = torch.get_num_threads()
        _usual = _usual if _limited else found
        _limited += 1
        torch.set_num_threads(1)
    _LIMITS.here = True
    try:
        yield
    finally:
        _LIMITS.here = False
        with _LOCK:
            _limited -= 1
            torch.set_num_threads(_usual)


@cache
def _blas() -> Any:
    """Return what sets the number of threads of the library that Numba's products use, SciPy's."""
    import scipy.linalg.cython_blas  # noqa: F401  # so that the library is there
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return ThreadpoolController().select(user_api="blas")


_products = threading.Lock()
"""Held while the limit of a library is set, which is one for the whole program."""


def _forget_others() -> None:
    """Give a forked process a lock of its own: who held the old one is not there any more."""
    global _products
    _products = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_others)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit matrix products in compiled code to one thread, and give the others back afterwards.

    They have the same bits everywhere then. One thread of a program at a time may be inside.
    """
    with _products:
        for library in _blas().lib_controllers:
            # From 3.8 on threadpoolctl obeys but one thread, the first that set a limit.
            if hasattr(library, "clear_controlling_thread"):
                library.clear_controlling_thread(force=True)
        with _blas().limit(limits=1):
            yield
