"""What all contenders share: the setting, the data, and taking turns. NumPy is all it needs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np

CLIENTS, STEPS, BATCH, RATE = 10, 20, 64, 0.1
WARM_UP = 2


def load(path: str, clients: int = CLIENTS) -> list[tuple[np.ndarray, np.ndarray]]:
    """Inputs and labels of every client. The file is shuffled, so slices are i.i.d."""
    with np.load(path) as file:
        parts = (np.array_split(file[name], clients) for name in ("inputs", "labels"))
        return list(zip(*parts, strict=True))


def turns(clock: Callable[[], float] = time.perf_counter) -> Iterator[None]:
    """One step for each round: first the warm-up, then a timed round for each line that is read."""
    for _ in range(WARM_UP):
        yield
    print("ready", flush=True)
    for _ in sys.stdin:
        start = clock()
        yield
        print(json.dumps({"seconds": clock() - start}), flush=True)
