"""Pictures of a study: the path, cross-validation, and a forest of coefficients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from numpy.typing import NDArray

from fedcanon.runs.plots import COLOURS
from fedcanon.statistics.choosing import Path, Validation
from fedcanon.statistics.heterogeneity import Differences

Array = NDArray[np.float64]

NAMED = 12
"""So many of the largest coefficients are named in a picture of a path."""


def plot_choice(path: Path, names: Sequence[str], validation: Validation | None) -> Figure:
    """Draw the standardised coefficients against κ and, if there is one, the deviance with bars.

    Args:
        path: The path.
        names: The names of the columns, in the order of the models' entries.
        validation: The cross-validation of the path.
    """
    count = 1 if validation is None else 2
    spaced = ConstrainedLayoutEngine(wspace=0.06)
    figure = Figure(figsize=(5.2 * count, 4.0), layout=spaced)
    axes = list(figure.subplots(1, count, squeeze=False)[0])
    for panel in axes:
        panel.set_xscale("log")
        panel.set_xlabel("κ")
        panel.invert_xaxis()
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
    if validation is not None:
        _draw_validation(axes[0], path, validation, len(names))
    _draw_coefficients(axes[-1], path, names)
    if validation is not None:
        for place in {validation.best, validation.simplest}:
            axes[-1].axvline(validation.kappas[place], color="#868e96", linestyle="--", linewidth=1)
    return figure


def _draw_validation(axes: Axes, path: Path, found: Validation, count: int) -> None:
    axes.errorbar(
        found.kappas, found.means, found.errors, fmt="o", markersize=3, color=COLOURS[1],
        ecolor="#adb5bd", elinewidth=1, capsize=2,
    )  # fmt: skip
    for place in {found.best, found.simplest}:
        axes.axvline(found.kappas[place], color="#868e96", linestyle="--", linewidth=1)
    axes.set_ylabel("mean deviance of rows left out")
    top = axes.secondary_xaxis("top")
    shown = np.linspace(0, len(path.kappas) - 1, 6).astype(int)
    sizes = [int((path.vectors[k].numpy()[:count] != 0).sum()) for k in shown]
    top.set_xticks([path.kappas[k] for k in shown], [str(size) for size in sizes])
    top.minorticks_off()
    top.set_xlabel("columns in the model")


def _draw_coefficients(axes: Axes, path: Path, names: Sequence[str]) -> None:
    values = np.stack([vector.numpy()[: len(names)] for vector in path.vectors])
    axes.axhline(0, color="black", linewidth=0.8)
    axes.plot(path.kappas, values, linewidth=1.3)
    axes.set_ylabel("standardised coefficients")
    last = values[-1]
    for k in np.argsort(-np.abs(last))[:NAMED]:
        if last[k]:
            axes.annotate(
                names[k], (path.kappas[-1], last[k]), xytext=(4, 0), textcoords="offset points",
                fontsize=7, va="center", annotation_clip=False,
            )  # fmt: skip


def plot_forest(found: Differences, common: Array, errors: Array) -> Figure:
    """Draw the coefficient of every site with its 95 % interval, above the common one.

    Args:
        found: The coefficients of the sites.
        common: The common coefficients of the same columns.
        errors: Their standard errors.
    """
    columns, sites = len(found.columns), len(found.sites)
    rows = int(np.ceil(columns / 3))
    figure = Figure(
        figsize=(4.2 * min(3, columns), (0.32 * sites + 1.3) * rows), layout="constrained"
    )
    panels = figure.subplots(rows, min(3, columns), squeeze=False).ravel()
    for k, axes in enumerate(panels):
        if k >= columns:
            axes.set_visible(False)
            continue
        places = np.arange(sites, 0, -1)
        axes.axvline(0, color="#adb5bd", linewidth=1)
        axes.errorbar(
            found.estimates[:, k], places, xerr=1.96 * found.errors[:, k], fmt="s",
            markersize=4, color=COLOURS[0], elinewidth=1.2,
        )  # fmt: skip
        axes.errorbar(
            [common[k]], [0], xerr=[1.96 * errors[k]], fmt="D", markersize=6, color=COLOURS[1]
        )
        axes.set_yticks([*places, 0], [*found.sites, "all"], fontsize=8)
        axes.set_title(f"{found.columns[k]}   I² = {found.i_squared[k]:.0%}", fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
    return figure
