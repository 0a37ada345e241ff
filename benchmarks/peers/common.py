"""What all contenders share: the setting, the data, and taking turns. NumPy is all it needs."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np

CLIENTS, STEPS, BATCH, RATE = 10, 20, 64, 0.1
WARM_UP, TURN = 2, float(os.environ.get("FEDCANON_BENCH_TURN", "1"))


def load(path: str, clients: int = CLIENTS) -> list[tuple[np.ndarray, np.ndarray]]:
    """Inputs and labels of every client. The file is shuffled, so slices are i.i.d."""
    with np.load(path) as file:
        parts = (np.array_split(file[name], clients) for name in ("inputs", "labels"))
        return list(zip(*parts, strict=True))


def turns(clock: Callable[[], float] = time.perf_counter) -> Iterator[None]:
    """One step for each round: first the warm-up, then a turn for each line that is read.

    Of a turn with short rounds the mean over ``TURN`` seconds counts, after a first one that finds
    nothing in the caches: in a run, too, rounds follow one another.
    """
    for _ in range(WARM_UP):
        yield
    print("ready", flush=True)
    for _ in sys.stdin:
        began, start, rounds = time.perf_counter(), clock(), 1
        yield
        if time.perf_counter() - began < TURN:
            began, start, rounds = time.perf_counter(), clock(), 0
            while time.perf_counter() - began < TURN:
                yield
                rounds += 1
        print(json.dumps({"seconds": (clock() - start) / rounds}), flush=True)
