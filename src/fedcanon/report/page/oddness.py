"""How far clients are from the others, in runs with a robust rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedcanon.report.page.reading import Run

LISTED = 30
"""The farthest clients of a run are listed, no more than so many."""
ODD = 1.0
"""From this distance on, a client is odd: the filter shortens its vector, or drops it."""


@dataclass(frozen=True)
class OddRow:
    """A client: how far it was in the last round, and how often it was dropped so far."""

    client: str
    distance: str
    dropped: str
    is_odd: bool


@dataclass(frozen=True)
class Oddness:
    """The clients of a run, the farthest first; ``hidden`` more are nearer than these."""

    run: str
    rows: list[OddRow]
    hidden: int


def oddness(runs: Sequence[Run]) -> list[Oddness]:
    """Return what robust rules have found in the last round of each run that has one."""
    return [_of(run) for run in runs if run.records and run.records[-1].distances]


def _of(run: Run) -> Oddness:
    last, names = run.records[-1], run.data.client_names if run.data else []
    farthest = sorted(last.distances, key=lambda client: -last.distances[client])
    rows = [
        OddRow(
            names[client] if client < len(names) else str(client),
            f"{last.distances[client]:,.2f}",
            f"{last.drops.get(client, 0) / last.round:.0%}",
            last.distances[client] > ODD,
        )
        for client in farthest[:LISTED]
    ]
    return Oddness(run.name, rows, len(farthest) - len(rows))
