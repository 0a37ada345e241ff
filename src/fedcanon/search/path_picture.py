"""The picture of a path: coefficients, losses, zeros and accuracy against κ."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedcanon.runs.plots import COLOURS
from fedcanon.search.point import Point

MOST_LINES = 100
"""Up to so many coefficients are drawn one by one; of more, quantiles are drawn."""

_BANDS = ((0.0, 1.0, 0.15), (0.05, 0.95, 0.3), (0.25, 0.75, 0.5))
"""For each band its lower quantile, its upper quantile and its opacity."""


def plot_path(
    points: Sequence[Point],
    chosen: int,
    criterion: str,
    title: str,
    coefficients: NDArray[np.floating] | None = None,
) -> Figure:
    """Draw losses, zeros and accuracy against κ, and mark the selected κ.

    Args:
        points: The path.
        chosen: The number of the selected point.
        criterion: What the selection made small, in words.
        title: The title of the picture.
        coefficients: The penalised weights, a row for each κ; drawn only if given.
    """
    curves = {"loss": [point.record.loss for point in points]}
    curves[criterion] = [point.criterion for point in points]
    shares = {"zeros": [point.record.sparsity for point in points]}
    accuracies = [point.record.test.get("accuracy") for point in points]
    if None not in accuracies:
        shares["test accuracy"] = [float(accuracy or 0) for accuracy in accuracies]
    panels: list[dict[str, list[float]]] = [curves, shares]
    if criterion == "BIC":  # has a scale of its own
        panels.insert(1, {criterion: curves.pop(criterion)})

    count = len(panels) + (coefficients is not None)
    figure = Figure(figsize=(3.9 * count, 3.3), layout="constrained")
    all_axes = list(figure.subplots(1, count, squeeze=False)[0])
    kappas = [point.kappa for point in points]
    for axes in all_axes:
        axes.set_xscale("log")
        axes.set_xlabel("κ")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.axvline(kappas[chosen], color="#868e96", linestyle="--", linewidth=1.2)
    if coefficients is not None:
        _draw_coefficients(all_axes.pop(0), kappas, coefficients)
    for axes, panel in zip(all_axes, panels, strict=True):
        for (label, values), colour in zip(panel.items(), COLOURS, strict=False):
            axes.plot(kappas, values, "o-", markersize=3, label=label, color=colour)
        axes.set_title(" and ".join(panel), fontsize=10)
        if panel is shares:
            axes.set_ylim(-0.03, 1.03)
            axes.yaxis.set_major_formatter("{x:.0%}")
        if len(panel) > 1:
            axes.legend(frameon=False, fontsize=9)
    figure.suptitle(title, fontsize=11)
    return figure


def _draw_coefficients(
    axes: Axes, kappas: Sequence[float], coefficients: NDArray[np.floating]
) -> None:
    axes.axhline(0, color="black", linewidth=0.8)
    if coefficients.shape[1] <= MOST_LINES:
        axes.plot(kappas, coefficients, linewidth=1.2)
        axes.set_title("coefficients", fontsize=10)
        return
    for low, high, strength in _BANDS:
        edges = np.quantile(coefficients, (low, high), axis=1)
        label = f"{low:.0%} to {high:.0%}"
        axes.fill_between(
            kappas, *edges, color=COLOURS[0], alpha=strength, label=label, linewidth=0
        )
    axes.set_title(f"quantiles of {coefficients.shape[1]:,} coefficients", fontsize=10)
    axes.legend(frameon=False, fontsize=9)
