"""Times of contenders that take turns, so that a busy machine is busy for all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

SAME_TIME = 1.1
"""Times whose ratio is nearer to 1 are taken as equal."""

Work = Callable[[], object]
Prepare = Callable[[], object]


def median_seconds(
    contenders: Mapping[str, Work],
    turns: int,
    done: Callable[[], None],
    prepare: Prepare = lambda: None,
) -> dict[str, float]:
    """The median seconds of each contender over so many turns, after one that does not count.

    ``prepare`` runs before every measurement, outside the clock; ``done`` after every one.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(turns + 1):
        for name, work in contenders.items():
            prepare()
            started = time.perf_counter()
            work()
            if turn:
                times[name].append(time.perf_counter() - started)
            done()
    return {name: statistics.median(several) for name, several in times.items()}
