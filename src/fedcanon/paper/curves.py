"""Figures of curves in panels side by side, as the paper has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from fedcanon.report.plots import COLOURS

Points = tuple[Sequence[float], Sequence[float]]


@dataclass(frozen=True)
class Panel:
    """One plot: labelled curves, each a list of x and one of y."""

    title: str
    x: str
    y: str
    curves: Mapping[str, Points]
    logarithmic: bool = False
    after_start: bool = False
    """Whether the axis leaves out how low the curves begin."""


def draw(panels: Sequence[Panel], *, rows: int = 1, common_legend: bool = True) -> Figure:
    """The panels in rows, with one legend below or, where labels differ, one in each."""
    columns = len(panels) // rows
    figure = Figure(figsize=(3.6 * columns, 3.4 * rows), layout="constrained")
    places = figure.subplots(rows, columns, squeeze=False).flat
    for letter, axes, panel in zip("abcdefgh", places, panels, strict=False):
        for number, (label, (x, y)) in enumerate(panel.curves.items()):
            axes.plot(x, y, label=label, linewidth=1.6, **_style(number, len(x)))
        axes.set_title(f"({letter}) {panel.title}", fontsize=10)
        axes.set_xlabel(panel.x)
        axes.set_ylabel(panel.y)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        if panel.logarithmic:
            axes.set_yscale("log")
        if panel.after_start:
            later = [value for _, y in panel.curves.values() for value in y[1:]]
            margin = max(0.08 * (max(later) - min(later)), 0.01)
            axes.set_ylim(min(later) - margin, max(later) + margin)
        if not common_legend:
            axes.legend(fontsize=7, frameon=False)
    if common_legend:
        handles = figure.axes[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=6, frameon=False, fontsize=9)
    return figure


def _style(number: int, points: int) -> dict[str, Any]:
    style: dict[str, Any] = {"color": COLOURS[number % len(COLOURS)]}
    style["linestyle"] = ("-", "--", "-.", ":")[number % 4]  # curves may lie on each other
    if points <= 12:
        style |= {"marker": "os^Dv"[number % 5], "markersize": 3.5}
    return style
