"""The picture of a sweep: what every trial reached, against each setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

from fedcanon.runs.config import parse_value
from fedcanon.runs.plots import COLOURS, PANELS
from fedcanon.search.space import Choices, Range
from fedcanon.search.sweep import Sweep
from fedcanon.search.trials import Trial, TrialStatus

_COLUMNS = 3
_BLUE, _ORANGE, _RED = COLOURS[0], COLOURS[1], COLOURS[3]


def plot_sweep(sweep: Sweep, trials: Sequence[Trial], best: Trial, title: str) -> Figure:
    """Draw a panel for each setting that is varied.

    Args:
        sweep: The sweep.
        trials: All its trials; failed ones are marked at the bottom of a panel.
        best: The best of them, which is marked.
        title: The title of the picture.
    """
    axes_of = dict(sweep.space.axes) or {"": Choices(("",))}
    columns = min(_COLUMNS, len(axes_of))
    rows = -(-len(axes_of) // columns)
    figure = Figure(figsize=(3.8 * columns + 0.6, 3.1 * rows + 0.5), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharey=True).flatten()
    for axes, (key, axis) in zip(panels, axes_of.items(), strict=False):
        _draw(axes, key, axis, trials, best)
    for axes in panels[len(axes_of) :]:
        axes.set_visible(False)
    name = sweep.judged
    for axes in panels[::columns]:
        axes.set_ylabel(PANELS.get(name, name.replace("_", " ")))
    handles = figure.axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    figure.suptitle(title, fontsize=11)
    return figure


def _draw(
    axes: Axes, key: str, axis: Choices | Range, trials: Sequence[Trial], best: Trial
) -> None:
    positions = _scale(axes, axis)

    def places(group: Sequence[Trial]) -> list[float]:
        values = [trial.params.get(key, "") for trial in group]
        return [positions.get(value, value) for value in values]

    def points(group: Sequence[Trial], **style: Any) -> None:
        spread = [trial.deviation or 0.0 for trial in group] if best.deviation else None
        means = [trial.mean for trial in group]
        style |= {"linestyle": "none", "clip_on": False}  # marks at the ends of a range are whole
        axes.errorbar(places(group), means, spread, elinewidth=1, **style)

    others = [trial for trial in trials if trial.values and trial != best]
    failed = [trial for trial in trials if trial.state is TrialStatus.failed]
    if others:
        points(others, fmt="o", color=_BLUE, alpha=0.6, markersize=5, label="trial")
    points([best], fmt="*", color=_ORANGE, markersize=13, zorder=3, label="best")
    if failed:
        bottom = axes.get_xaxis_transform()  # in which y counts heights of the panel
        low = [0.02] * len(failed)
        axes.plot(places(failed), low, "x", color=_RED, transform=bottom, label="failed")
    axes.set_xlabel(key)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _scale(axes: Axes, axis: Choices | Range) -> dict[Any, float]:
    """Set up the horizontal axis for a setting, and say where each of its listed values lies."""
    if isinstance(axis, Range):
        if axis.log:
            axes.set_xscale("log")
            between = (1.0, 2.0, 5.0) if axis.high < 50 * axis.low else (1.0,)
            axes.xaxis.set_major_locator(LogLocator(subs=between))
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlim(axis.low, axis.high)
        return {}
    values = [parse_value(text) for text in axis.texts]
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    places = values if numbers else list(range(len(values)))
    if numbers and min(values) > 0 and max(values) >= 10 * min(values):
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(places, axis.texts, rotation=0 if numbers else 20)
    return dict(zip(axis.texts, map(float, places), strict=True))
