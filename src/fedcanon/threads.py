"""How many threads PyTorch uses."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

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
