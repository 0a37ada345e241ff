"""Plots of the measures of runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure

from fedcanon.errors import FedcanonError
from fedcanon.files import explained, write_whole
from fedcanon.runs.against import Against
from fedcanon.runs.measures import Record

PANELS = {
    "objective": "objective f + h",
    "accuracy": "test accuracy",
    "sparsity": "weights that are exactly zero",
    "gradient_norm": "stationarity ‖G‖",
}
LOGARITHMIC = {"objective", "gradient_norm"}
AXES = {"rounds": "round", "bytes": "MB sent, both ways", "seconds": "seconds of training"}
COLOURS = ("#3b5bdb", "#e8590c", "#2b8a3e", "#c2255c", "#0c8599", "#f08c00", "#5f3dc4", "#495057")


def plot_histories(
    histories: Mapping[str, Sequence[Record]], title: str, against: Against = Against.rounds
) -> Figure:
    """Plot objective, accuracy, sparsity and stationarity of several runs.

    Args:
        histories: The records of each run, by its label in the legend.
        title: The title of the figure.
        against: The quantity on the horizontal axis.
    """
    return plot_means({label: [history] for label, history in histories.items()}, title, against)


def plot_means(
    histories: Mapping[str, Sequence[Sequence[Record]]],
    title: str,
    against: Against = Against.rounds,
    columns: int = len(PANELS),
) -> Figure:
    """Plot means over seeds, with a band of one standard deviation to either side.

    Args:
        histories: The records of a method with each seed, by its label in the legend.
        title: The title of the figure.
        against: The quantity on the horizontal axis.
        columns: How many panels stand side by side.
    """
    tables = {
        label: [[record.flat() for record in history] for history in seeds]
        for label, seeds in histories.items()
    }
    ends = [rows[-1] for seeds in tables.values() for rows in seeds]
    shown = [name for name in PANELS if any(end.get(name) is not None for end in ends)]
    columns = min(columns, len(shown))
    rows = -(-len(shown) // columns)
    labels = min(4, 2 * columns)
    legend_rows = -(-len(tables) // labels) if len(tables) > 1 else 0
    size = (3.6 * columns, 3.2 * rows + 0.25 * legend_rows)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes in panels[len(shown) :]:
        axes.set_visible(False)
    for axes, name in zip(panels, shown, strict=False):
        for (label, seeds), style in zip(tables.items(), _styles(), strict=False):
            _draw_mean(axes, seeds, name, against, label=label, **style)
        axes.set_title(PANELS[name], fontsize=10)
        axes.set_xlabel(AXES[against])
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        if name in LOGARITHMIC:
            axes.set_yscale("log")
        else:
            axes.set_ylim(0, 1)
            axes.yaxis.set_major_formatter("{x:.0%}")
    if legend_rows:
        handles = figure.axes[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=labels, frameon=False, fontsize=9)
    figure.suptitle(title, fontsize=11)
    return figure


def _draw_mean(
    axes: Axes, seeds: Sequence[Sequence[dict[str, Any]]], name: str, against: Against, **style: Any
) -> None:
    """Draw the mean of a measure over the seeds, as far as all of them have it."""
    measured = [[row for row in rows if row.get(name) is not None] for rows in seeds]
    together = list(zip(*measured, strict=False))
    x = [np.mean([_position(row, against) for row in rows]) for rows in together]
    values = np.array([[row[name] for row in rows] for rows in together], dtype=float)
    values = values.reshape(len(together), len(seeds))
    axes.plot(x, values.mean(1), linewidth=1.8, **style)
    if len(seeds) > 1 and len(together):
        low, high = (values.mean(1) + sign * values.std(1, ddof=1) for sign in (-1, 1))
        if name in LOGARITHMIC:  # a band to below 0 would have no place
            low = np.maximum(low, values.min(1))
        axes.fill_between(x, low, high, color=style["color"], alpha=0.18, linewidth=0)


def _position(row: dict[str, Any], against: Against) -> float:
    if against is Against.bytes:
        return float(row["bytes_down"] + row["bytes_up"]) / 1e6
    return float(row["round" if against is Against.rounds else "seconds"])


def _styles() -> Iterator[dict[str, Any]]:
    """Yield line styles: colours that colour-blind people can distinguish, then with dashes."""
    for dashes in ("-", "--", ":", "-."):
        for colour in COLOURS:
            yield {"color": colour, "linestyle": dashes}


def check_writable(path: str | Path) -> None:
    """Refuse a picture that could not be written, before the work that it would show.

    Raises:
        FedcanonError: The name does not end in a format of pictures, or there is no such folder.
    """
    path = Path(path)
    endings = sorted(FigureCanvasBase.get_supported_filetypes())
    if path.suffix.removeprefix(".") not in endings:
        raise FedcanonError(
            f"cannot write the picture {path}: end its name in one of {', '.join(endings)}."
        )
    if not path.parent.is_dir():
        raise FedcanonError(f"cannot write the picture {path}: there is no folder {path.parent}.")


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure in the format that the file's ending names.

    Raises:
        FedcanonError: The picture cannot be written there.
    """
    check_writable(path)
    embedded = mpl.rc_context({"pdf.fonttype": 42})  # letters that publishers accept
    with explained(f"cannot write the picture {path}"), embedded:
        write_whole(Path(path), partial(figure.savefig, dpi=150))
