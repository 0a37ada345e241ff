"""The table of results: the last measures, averaged over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fedcanon.algorithms import ALGORITHMS
from fedcanon.report.page.groups import Group
from fedcanon.report.page.reading import Run
from fedcanon.report.wording import byte_count, different, mean_and_deviation
from fedcanon.runs.measures import Record

NOTHING = ("–", "")

Write = Callable[[float], str]
_NUMBER, _DIGITS = "{:.4g}".format, "{:.2g}".format
_SHARE, _COUNT = "{:.2%}".format, "{:,.0f}".format
COLUMNS: dict[str, tuple[Callable[[Record], float | None], Write, Write]] = {
    "f + h": (lambda record: record.objective, _NUMBER, _DIGITS),
    "loss f": (lambda record: record.loss, _NUMBER, _DIGITS),
    "accuracy": (lambda record: record.test.get("accuracy"), _SHARE, _SHARE),
    "‖G‖": (lambda record: record.gradient_norm, _NUMBER, _DIGITS),
    "zeros": (lambda record: record.sparsity, _SHARE, _SHARE),
    "ε": (lambda record: record.diagnostics.get("epsilon"), _NUMBER, _DIGITS),
    "prox calls": (lambda r: r.cost.server_prox + r.cost.client_prox, _COUNT, _COUNT),
    "sent": (lambda r: r.cost.bytes_down + r.cost.bytes_up, byte_count, byte_count),
    "seconds": (lambda record: record.cost.seconds, "{:,.1f}".format, _DIGITS),
}
"""For each column: its measure, how its mean is written, and how its deviation is."""


@dataclass(frozen=True)
class ResultRow:
    """What a group reached.

    ``runs`` is the number of runs behind the means; ``cells`` holds, by column, the mean and the
    standard deviation as text.
    """

    label: str
    runs: int
    cells: dict[str, tuple[str, str]]


def results(groups: Sequence[Group]) -> list[ResultRow]:
    """A row for each group; columns in which nothing was measured are left out."""
    rows = [_row(group) for group in groups]
    used = [name for name in ("rounds", *COLUMNS) if any(name in row.cells for row in rows)]
    return [replace(row, cells={n: row.cells.get(n, NOTHING) for n in used}) for row in rows]


def _row(group: Group) -> ResultRow:
    last = [run.records[-1] for run in group.measured]
    if not last:
        return ResultRow(group.label, 0, {})
    cells = {"rounds": (" / ".join(different(f"{record.round:,}" for record in last)), "")}
    for name, (measure, write_mean, write_deviation) in COLUMNS.items():
        found = [value for value in map(measure, last) if value is not None]
        values = [value for value in found if not math.isnan(value)]
        if values:
            mean, deviation = mean_and_deviation(values)
            spread = f"± {write_deviation(deviation)}" if deviation else ""
            cells[name] = (write_mean(mean), spread)
    return ResultRow(group.label, len(last), cells)


def notes(groups: Sequence[Group]) -> list[str]:
    """Sentences below the table: on unfinished runs, and on methods that ignore the penalty."""
    several = sum(len(group.runs) for group in groups) > 1
    unfinished = [
        f"{_progress(run)}{'' if run in group.measured else ', left out of the means'}"
        for group in groups
        for run in group.runs
        if several and run.status != "finished"
    ]
    methods = different(str(group.settings["algorithm.name"]) for group in groups)
    smooth = [n for n in methods if n in ALGORITHMS and ALGORITHMS[n].solves == "f"]
    verb = "minimises" if len(smooth) == 1 else "minimise"
    ignoring = f"{', '.join(smooth)} {verb} f alone; the penalty is only measured."
    return [f"Not finished: {run}." for run in unfinished] + [ignoring] * bool(smooth)


def _progress(run: Run) -> str:
    done = f"{run.records[-1].round:,}" if run.records else "no"
    return f"{run.name} ({run.status}, {done} of {run.config.rounds:,} rounds)"
