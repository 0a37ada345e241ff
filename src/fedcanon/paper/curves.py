"""Figures of curves in panels side by side, as the paper has them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_letters
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedcanon.runs.plots import COLOURS

Points = tuple[Sequence[float], ...]
"""The x and the y of a curve; a third list is half the width of a band around it."""


@dataclass(frozen=True)
class Panel:
    """One plot: labelled curves."""

    title: str
    x: str
    y: str
    curves: Mapping[str, Points]
    logarithmic: bool = False
    after_start: bool = False
    """Whether the y axis is fitted to the curves without their first points, which lie far off."""


def draw(
    panels: Sequence[Panel],
    *,
    columns: int | None = None,
    common_legend: bool = True,
    common_y: bool = False,
) -> Figure:
    """The panels in rows of so many columns, or in one row.

    There is one legend below or, where labels differ, one in each panel.

    With one legend a label looks the same in every panel, also where others are missing.
    """
    columns = min(columns or len(panels), len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(3.6 * columns, 3.4 * rows), layout="constrained")
    places = figure.subplots(rows, columns, squeeze=False, sharey=common_y).ravel()
    for axes in places[len(panels) :]:
        axes.set_visible(False)
    everywhere = list(dict.fromkeys(label for panel in panels for label in panel.curves))
    handles: dict[str, Line2D] = {}
    for letter, axes, panel in zip(ascii_letters, places, panels, strict=False):
        labels = everywhere if common_legend else list(panel.curves)
        for label, (x, y, *band) in panel.curves.items():
            style = _style(labels.index(label), len(x))
            (handles[label],) = axes.plot(x, y, label=label, linewidth=1.6, **style)
            for widths in band:
                low, high = (
                    [m + sign * w for m, w in zip(y, widths, strict=True)] for sign in (-1, 1)
                )
                axes.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)
        axes.set_title(f"({letter}) {panel.title}", fontsize=10)
        axes.set_xlabel(panel.x)
        axes.set_ylabel(panel.y)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        if panel.logarithmic:
            axes.set_yscale("log")
        if panel.after_start:
            later = [value for _, y, *_ in panel.curves.values() for value in y[1:]]
            if later:  # not if all curves diverged at once
                margin = max(0.08 * (max(later) - min(later)), 0.01)
                axes.set_ylim(min(later) - margin, max(later) + margin)
        if not common_legend:
            axes.legend(fontsize=7, frameon=False)
    if common_legend:
        figure.legend(
            handles=[handles[label] for label in everywhere],
            loc="outside lower center",
            ncols=min(6, 2 * columns),  # two labels are as wide as a panel
            frameon=False,
            fontsize=9,
        )
    return figure


def _style(number: int, points: int) -> dict[str, Any]:
    style: dict[str, Any] = {"color": COLOURS[number % len(COLOURS)]}
    dashes = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))  # curves may lie on each other
    style["linestyle"] = dashes[number % len(dashes)]
    if points <= 12:
        style |= {"marker": "os^Dv"[number % 5], "markersize": 3.5}
    return style
