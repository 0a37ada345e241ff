"""Plots of the measures of runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

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
    tables = {label: [r.flat() for r in history] for label, history in histories.items()}
    shown = [n for n in PANELS if any(rows[-1].get(n) is not None for rows in tables.values())]
    legend_rows = -(-len(tables) // 4) if len(tables) > 1 else 0
    figure = Figure(figsize=(3.6 * len(shown), 3.2 + 0.25 * legend_rows), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        for (label, rows), style in zip(tables.items(), _styles(), strict=False):
            measured = [row for row in rows if row.get(name) is not None]
            x, y = [_position(row, against) for row in measured], [row[name] for row in measured]
            axes.plot(x, y, label=label, linewidth=1.8, **style)
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
        figure.legend(*handles, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    figure.suptitle(title, fontsize=11)
    return figure


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
    with explained(f"cannot write the picture {path}"):
        write_whole(Path(path), partial(figure.savefig, dpi=150))
