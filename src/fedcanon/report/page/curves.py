"""The measures along runs as curves: the mean over the seeds and the range around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedcanon.report.page.groups import Group
from fedcanon.runs.plots import PANELS

TITLES = {
    "objective": PANELS["objective"],
    "loss": "loss f",
    "accuracy": PANELS["accuracy"],
    "gradient_norm": PANELS["gradient_norm"],
    "sparsity": PANELS["sparsity"],
    "worst_client_loss": "largest loss of a client",
    "epsilon": "privacy spent, ε",
}
SHARES = {"accuracy", "sparsity"}
POINTS = 300
"""The largest number of points of a curve; more could not be told apart on a screen."""
DECADE = 10.0
"""An axis is logarithmic if the largest value is at least so many times the smallest."""

Numbers = list[float | None]


def panels(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """What the charts of measures show: a panel for each measure, with a curve for each group."""
    found = []
    histories = [[[r.flat() for r in run.records] for run in group.measured] for group in groups]
    for name, title in TITLES.items():
        curves = [_curve(group, name) for group in histories]
        values = [y for curve in curves for y in curve.get("mean", []) + curve.get("low", [])]
        known = [y for y in values if y is not None]
        if known:
            share = name in SHARES
            log = not share and min(known) > 0 and max(known) / min(known) >= DECADE
            found.append(
                {"name": name, "title": title, "share": share, "log": log, "curves": curves}
            )
    return found


def _curve(histories: list[list[dict[str, Any]]], name: str) -> dict[str, Numbers]:
    """The curve of one measure: mean, smallest and largest value over the runs of a group.

    It has a point for every round after which all runs have the measure.
    """
    tables = [{r["round"]: r for r in rows if r.get(name) is not None} for rows in histories]
    rounds = sorted(set.intersection(*map(set, tables))) if tables else []
    if not rounds:
        return {}
    kept = np.unique(np.linspace(0, len(rounds) - 1, POINTS).round().astype(int))
    rows = [[table[rounds[k]] for table in tables] for k in kept]

    def means(key: str) -> Numbers:
        return [shortened(float(np.mean([row[key] for row in at_round]))) for at_round in rows]

    down, up = means("bytes_down"), means("bytes_up")
    curve: dict[str, Numbers] = {
        "rounds": [float(at_round[0]["round"]) for at_round in rows],
        "seconds": means("seconds"),
        "bytes": [(a or 0.0) + (b or 0.0) for a, b in zip(down, up, strict=True)],
        "mean": means(name),
    }
    if len(tables) > 1:
        curve["low"] = [shortened(min(row[name] for row in at_round)) for at_round in rows]
        curve["high"] = [shortened(max(row[name] for row in at_round)) for at_round in rows]
    return curve


def shortened(value: float) -> float | None:
    """A number rounded to six digits; None if it is infinite or NaN, which no axis can show."""
    return float(f"{value:.6g}") if np.isfinite(value) else None
