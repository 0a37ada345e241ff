"""Random generators, each derived from (seed, purpose, round, client).

Results therefore do not depend on the number of workers, on the order in which clients finish, on
the engine, or on whether the run was interrupted and resumed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import numpy as np
import torch


class Purpose(IntEnum):
    """What random numbers are used for.

    The values determine the results of a seed: never change one, and never use one twice.
    """

    PARTITION = 1
    MODEL = 2
    PARTICIPANTS = 3
    COINS = 4
    BATCHES = 5
    MODULE = 6
    SMOOTHNESS = 7
    ENCODING = 8
    FOLDS = 9
    ADVERSARY = 10


def generator(seed: int, purpose: Purpose, t: int = 0, client: int = 0) -> np.random.Generator:
    """Return the generator for one purpose in round ``t`` for one client."""
    return np.random.default_rng(np.random.SeedSequence([seed, purpose, t, client]))


@contextmanager
def module_draws(seed: int, t: int, client: int) -> Iterator[None]:
    """Seed PyTorch's generators (dropout) for the work of one client, and restore them afterwards.

    This does not use ``torch.manual_seed``, which takes as long as several local steps of a small
    model.
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
    """Return a seed for PyTorch's generators, which modules use for weights and dropout."""
    return int(generator(seed, purpose, t, client).integers(2**63))
