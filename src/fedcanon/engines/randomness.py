"""Every random draw of a run, derived from (seed, purpose, round, client).

A result therefore does not depend on the number of workers, on the order in which clients finish,
on the engine, or on whether the run was interrupted and resumed.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What a draw is for. The numbers are part of what a seed means: never reuse one."""

    DATA = 0
    PARTITION = 1
    MODEL = 2
    PARTICIPANTS = 3
    COINS = 4
    BATCHES = 5
    MODULE = 6
    SMOOTHNESS = 7


def generator(seed: int, purpose: Purpose, t: int = 0, client: int = 0) -> np.random.Generator:
    """The generator of one purpose in round ``t`` for one client."""
    return np.random.default_rng(np.random.SeedSequence([seed, purpose, t, client]))


def torch_seed(seed: int, purpose: Purpose, t: int = 0, client: int = 0) -> int:
    """A seed for PyTorch's own generator, for what a module draws itself (weights, dropout)."""
    return int(generator(seed, purpose, t, client).integers(2**63))
