"""Times of contenders that take turns, so that a busy machine is busy for all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

from fedcanon.paper.trials import Watch

SAME_TIME = 1.1
"""Times whose ratio is nearer to 1 are taken as equal."""

Work = Callable[[], object]


def median_seconds(
    watch: Watch,
    label: str,
    contenders: Mapping[str, Work],
    turns: int,
    prepare: Work = lambda: None,
) -> dict[str, float]:
    """The median seconds of each contender over so many turns, after one that does not count.

    ``prepare`` runs before every measurement, outside the clock; ``watch`` is told of each one.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    with watch.steps(label, (turns + 1) * len(contenders)) as done:
        for turn in range(turns + 1):
            for name, work in contenders.items():
                prepare()
                started = time.perf_counter()
                work()
                if turn:
                    times[name].append(time.perf_counter() - started)
                done()
    return {name: statistics.median(several) for name, several in times.items()}


def over_fedcanon(seconds: Mapping[str, float]) -> dict[str, float]:
    """The time of each method over that of FedCanon."""
    return {method: own / seconds["FedCanon"] for method, own in seconds.items()}
