"""Every random draw of a run, derived from (seed, purpose, round, client).

A result therefore does not depend on the number of workers, on the order in which clients finish,
on the engine, or on whether the run was interrupted and resumed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import numpy as np
import torch


class Purpose(IntEnum):
    """What a draw is for. The numbers are part of what a seed means: never reuse one."""

    PARTITION = 1
    MODEL = 2
    PARTICIPANTS = 3
    COINS = 4
    BATCHES = 5
    MODULE = 6
    SMOOTHNESS = 7
    ENCODING = 8


def generator(seed: int, purpose: Purpose, t: int = 0, client: int = 0) -> np.random.Generator:
    """The generator of one purpose in round ``t`` for one client."""
    return np.random.default_rng(np.random.SeedSequence([seed, purpose, t, client]))


@contextmanager
def module_draws(seed: int, t: int, client: int) -> Iterator[None]:
    """PyTorch's own generators seeded for one client's work (dropout), and put back afterwards.

    Not ``torch.manual_seed``, which costs as much as several local steps of a small model.
    """
    generators = [torch.default_generator, *torch.cuda.default_generators]
    before = [each.get_state() for each in generators]
    for each in generators:
        each.manual_seed(torch_seed(seed, Purpose.MODULE, t, client))
    try:
        yield
    finally:
        for each, state in zip(generators, before, strict=True):
            each.set_state(state)


def torch_seed(seed: int, purpose: Purpose, t: int = 0, client: int = 0) -> int:
    """A seed for PyTorch's own generator, for what a module draws itself (weights, dropout)."""
    return int(generator(seed, purpose, t, client).integers(2**63))
