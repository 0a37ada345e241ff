"""What both comparisons write: JSON, Markdown and a picture."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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


def write(path: Path, found: Any, text: str, picture: Figure) -> None:
    """Write path.json, path.md and path.png."""
    path.parent.mkdir(parents=True, exist_ok=True)
    numbers = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    path.with_suffix(".json").write_text(numbers + "\n")
    path.with_suffix(".md").write_text(text)
    FigureCanvasAgg(picture).print_png(path.with_suffix(".png"))
