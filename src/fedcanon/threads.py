"""How many threads PyTorch uses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit PyTorch to one thread, and give the others back afterwards.

    One thread gives the same bits on every machine and does not stall where cores are busy: on a
    loaded machine, small steps on several threads can take fifty times as long.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
