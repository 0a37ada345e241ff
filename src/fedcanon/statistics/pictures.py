"""Pictures of a study: the path, cross-validation, and a forest of coefficients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from numpy.typing import NDArray

from fedcanon.runs.plots import COLOURS
from fedcanon.statistics.choosing import Chosen, Path
from fedcanon.statistics.heterogeneity import Differences
from fedcanon.statistics.quality import Calibration
from fedcanon.statistics.stability import Stability

Array = NDArray[np.float64]

NAMED, STABLE = 12, 25
"""So many of the largest coefficients, and of the most stable columns, are named in pictures."""


def plot_choice(chosen: Chosen, names: Sequence[str], compared: str) -> Figure:
    """Draw how κ was chosen: what was compared against κ, and the standardised coefficients.

    Args:
        chosen: How κ was chosen, along a path.
        names: The names of the penalised entries of a model, which come first in it.
        compared: What was compared.
    """
    path = chosen.path
    figure = Figure(figsize=(10.4, 4.0), layout=ConstrainedLayoutEngine(wspace=0.06))
    left, right = figure.subplots(1, 2)
    for panel in (left, right):
        panel.set_xscale("log")
        panel.set_xlabel("κ")
        panel.invert_xaxis()
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
        panel.axvline(chosen.kappa, color="#868e96", linestyle="--", linewidth=1)
    _draw_comparison(left, chosen)
    left.set_ylabel(compared)
    _draw_sizes(left, path, len(names))
    _draw_coefficients(right, path, names)
    return figure


def _draw_comparison(axes: Axes, chosen: Chosen) -> None:
    found = chosen.validation
    if found is None:
        assert chosen.criterion is not None
        axes.plot(chosen.path.kappas, chosen.criterion, "o-", markersize=3, color=COLOURS[1])
        return
    axes.errorbar(
        found.kappas, found.means, found.errors, fmt="o", markersize=3, color=COLOURS[1],
        ecolor="#adb5bd", elinewidth=1, capsize=2,
    )  # fmt: skip
    best = found.kappas[found.best]
    axes.axvline(best, color="#ced4da", linestyle=":", linewidth=1)


def _draw_sizes(axes: Axes, path: Path, count: int) -> None:
    top = axes.secondary_xaxis("top")
    shown = np.linspace(0, len(path.kappas) - 1, 6).astype(int)
    sizes = [int((path.vectors[k].numpy()[:count] != 0).sum()) for k in shown]
    top.set_xticks([path.kappas[k] for k in shown], [str(size) for size in sizes])
    top.minorticks_off()
    top.set_xlabel("coefficients in the model")


def _draw_coefficients(axes: Axes, path: Path, names: Sequence[str]) -> None:
    values = np.stack([vector.numpy()[: len(names)] for vector in path.vectors])
    axes.axhline(0, color="black", linewidth=0.8)
    axes.plot(path.kappas, values, linewidth=1.3)
    axes.set_ylabel("standardised coefficients")
    last = values[-1]
    named = [k for k in np.argsort(-np.abs(last))[:NAMED] if last[k]]
    low, high = axes.get_ylim()
    place, gap = -np.inf, (high - low) / 26  # the height of a name
    for k in sorted(named, key=lambda k: last[k]):
        place = max(place + gap, float(last[k]))
        axes.annotate(
            names[k], (path.kappas[-1], place), xytext=(4, 0), textcoords="offset points",
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


def plot_calibration(found: Calibration) -> Figure:
    """Draw the share of events against the probability, for groups of rows."""
    figure = Figure(figsize=(4.4, 4.0), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="#adb5bd", linewidth=1, linestyle="--")
    axes.plot(found.expected, found.observed, color=COLOURS[0], linewidth=1.2)
    axes.scatter(
        found.expected, found.observed, s=20 + 200 * found.rows / found.rows.sum(),
        color=COLOURS[0], zorder=3,
    )  # fmt: skip
    axes.set_xlabel("mean probability")
    axes.set_ylabel("share of events")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def plot_stability(found: Stability, share: float = 0.8) -> Figure:
    """Draw how often the most often selected columns were selected."""
    order = np.argsort(-found.shares, kind="stable")[:STABLE][::-1]
    figure = Figure(figsize=(5.2, 0.24 * len(order) + 1.2), layout="constrained")
    axes = figure.subplots()
    colours = [COLOURS[0] if found.shares[k] >= share else "#ced4da" for k in order]
    axes.barh(range(len(order)), found.shares[order], color=colours, height=0.7)
    axes.axvline(share, color="#868e96", linestyle="--", linewidth=1)
    axes.set_yticks(range(len(order)), [found.columns[k] for k in order], fontsize=8)
    axes.set_xlim(0, 1)
    axes.set_xlabel("share of subsamples in which the column was selected")
    axes.spines[["top", "right"]].set_visible(False)
    return figure
