"""Pictures of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure

from fedcanon.errors import FedcanonError
from fedcanon.runs import Record

PANELS = {
    "objective": "objective f + h",
    "accuracy": "test accuracy",
    "sparsity": "weights that are exactly zero",
    "gradient_norm": "stationarity ‖G‖",
}
LOGARITHMIC = {"objective", "gradient_norm"}


def plot_history(history: Sequence[Record], title: str) -> Figure:
    """Objective, accuracy, sparsity and stationarity against rounds, as far as measured."""
    rows = [record.flat() for record in history]
    shown = [name for name in PANELS if rows[-1].get(name) is not None]
    figure = Figure(figsize=(3.6 * len(shown), 3.2), layout="constrained")
    rounds = [row["round"] for row in rows]
    for axes, name in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        axes.plot(rounds, [row[name] for row in rows], color="#3b5bdb", linewidth=1.8)
        axes.set_title(PANELS[name], fontsize=10)
        axes.set_xlabel("round")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        if name in LOGARITHMIC:
            axes.set_yscale("log")
        else:
            axes.set_ylim(0, 1)
            axes.yaxis.set_major_formatter("{x:.0%}")
    figure.suptitle(title, fontsize=11)
    return figure


def check_writable(path: Path) -> None:
    """Refuse a picture that could not be written, before the work that it would show."""
    endings = sorted(FigureCanvasBase.get_supported_filetypes())
    if path.suffix.removeprefix(".") not in endings:
        raise FedcanonError(
            f"cannot write the picture {path}: end its name in one of {', '.join(endings)}."
        )
    if not path.parent.is_dir():
        raise FedcanonError(f"cannot write the picture {path}: there is no folder {path.parent}.")


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format that the file's ending names."""
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise FedcanonError(f"cannot write the picture {path}: {error}.") from None
