"""A round of fedcanon: python -m peers.ours [beyond-steps] KEY=VALUE ...

With ``beyond-steps`` only the part of a round counts that workers do not spend in local steps.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from peers.common import turns

from fedcanon import build, load_config
from fedcanon.data import DATASETS, Dataset, Split
from fedcanon.engines.processes import cores
from fedcanon.engines.work import ClientWork

BEYOND_STEPS = "beyond-steps"


def noise(samples: int) -> Dataset:
    """Random samples of 20 features, for more clients than real data have."""
    draws = torch.Generator().manual_seed(0)
    inputs = torch.randn(samples, 20, generator=draws)
    split = Split(inputs, torch.randint(10, (samples,), generator=draws))
    return Dataset("noise", split, Split(inputs[:100], split.targets[:100]), classes=10)


def clock_beyond_steps() -> Callable[[], float]:
    """A clock that stands still for the share of time that workers are in local steps."""
    in_steps, descend = multiprocessing.Value("d"), ClientWork.descend

    def timed(*arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        result = descend(*arguments, **options)
        with in_steps:
            in_steps.value += time.perf_counter() - start
        return result

    ClientWork.descend = timed  # which worker processes inherit
    return lambda: time.perf_counter() - in_steps.value / cores()


def main(settings: list[str]) -> None:
    torch.set_num_threads(1)  # as the command line does
    DATASETS["noise"] = noise
    clock = time.perf_counter
    if settings[0] == BEYOND_STEPS:
        clock, settings = clock_beyond_steps(), settings[1:]
    federation = build(load_config(None, settings))
    for _ in turns(clock):
        federation.step()


if __name__ == "__main__":  # worker processes may import this module
    main(sys.argv[1:])
