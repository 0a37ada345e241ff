"""What benchmarks write: JSON, Markdown and a picture."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


class Target(NamedTuple):
    """Something that should hold, and what was measured."""

    what: str
    met: bool
    measured: str

    def cells(self) -> tuple[str, ...]:
        return self.what, "yes" if self.met else "no", self.measured


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def targets_table(targets: Iterable[Target]) -> str:
    return table(("target", "met", "measured"), [target.cells() for target in targets])


def panels(
    names: Sequence[str], columns: int, width: float, height: float, across: str = "rounds"
) -> tuple[Figure, list[Axes]]:
    """Return a figure with a panel for each name, in so many columns, and the panels.

    ``across`` is what goes from left to right in all of them.
    """
    columns = min(columns, len(names))
    lines = -(-len(names) // columns)
    size = (width * columns, height * lines + 0.7)
    figure = Figure(figsize=size, dpi=110, layout="constrained")
    every = list(figure.subplots(lines, columns, squeeze=False).flat)
    for axes in every[len(names) :]:
        axes.set_axis_off()
    for axes, name in zip(every, names, strict=False):
        axes.set_title(name, fontsize=9)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel(across, fontsize=9)
    return figure, every[: len(names)]


def write(path: Path, found: Any, text: str, picture: Figure | None = None) -> None:
    """Write path.json, path.md and, if there is a picture, path.png."""
    path.parent.mkdir(parents=True, exist_ok=True)
    numbers = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    path.with_suffix(".json").write_text(numbers + "\n")
    path.with_suffix(".md").write_text(text)
    if picture is not None:
        FigureCanvasAgg(picture).print_png(path.with_suffix(".png"))
