"""What comes out of an item of the paper: tables, a figure, claims with verdicts; and its files."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from fedcanon.files import explained, write_whole
from fedcanon.paper.scales import Scale
from fedcanon.runs.plots import save
from fedcanon.version import __version__

Cells = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A caption, the names of the columns, and rows of text; the first column names the row."""

    caption: str
    head: Cells
    rows: Sequence[Cells]


@dataclass(frozen=True)
class Claim:
    """What the paper says, what was measured, and whether they agree; None is no verdict."""

    paper: str
    measured: str
    agrees: bool | None

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        if self.agrees is None:
            return "no verdict"
        return "agrees" if self.agrees else "does not agree"


@dataclass(frozen=True)
class Outcome:
    """The result of one item.

    ``title`` says which data were at hand, ``settings`` all that was chosen, ``data`` every number
    behind tables and figure, ``notes`` what a reader must know.
    """

    item: str
    title: str
    scale: Scale
    settings: Mapping[str, Any]
    tables: Sequence[Table]
    claims: Sequence[Claim]
    data: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    figure: Figure | None = None


def judged(scale: Scale, claims: Sequence[Claim]) -> list[Claim]:
    """The claims, without verdicts at the scale that only shows that everything runs."""
    return [replace(claim, agrees=None) for claim in claims] if scale is Scale.smoke else [*claims]


def write(outcome: Outcome, folder: Path) -> list[Path]:
    """Write NAME.json, NAME.md and NAME.tex, and the figure as NAME.png and NAME.pdf."""
    texts = {"json": _json(outcome), "md": markdown(outcome), "tex": latex(outcome)}
    paths = [folder / f"{outcome.item}.{ending}" for ending in texts]
    with explained(f"cannot write to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in zip(paths, texts.values(), strict=True):
            write_whole(path, text)
    if outcome.figure is not None:
        pictures = [folder / f"{outcome.item}.{ending}" for ending in ("png", "pdf")]
        for path in pictures:
            save(outcome.figure, path)
        paths += pictures
    return paths


def _json(outcome: Outcome) -> str:
    versions = {
        "fedcanon": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    table = {
        "item": outcome.item,
        "title": outcome.title,
        "scale": outcome.scale,
        "settings": outcome.settings,
        "claims": [{**asdict(claim), "verdict": claim.verdict} for claim in outcome.claims],
        "notes": outcome.notes,
        "tables": [asdict(table) for table in outcome.tables],
        "data": outcome.data,
        "versions": versions,
    }
    lines = [
        f'"{key}": {json.dumps(_plain(value), ensure_ascii=False)}' for key, value in table.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _plain(value: Any) -> Any:
    """As JSON has it: numbers of six digits, and null for those that are not finite."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def markdown(outcome: Outcome) -> str:
    """Tables, claims and notes as Markdown."""
    parts = [f"**{outcome.title}** · scale {outcome.scale}"]
    for table in outcome.tables:
        lines = [table.head, tuple("---" for _ in table.head), *table.rows]
        parts += [
            f"*{_markdown_text(table.caption)}*",
            "\n".join(_markdown_row(cells) for cells in lines),
        ]
    if outcome.claims:
        head: list[Cells] = [("the paper", "measured", "verdict"), ("---", "---", "---")]
        rows = [(claim.paper, claim.measured, claim.verdict) for claim in outcome.claims]
        parts.append("\n".join(_markdown_row(cells) for cells in head + rows))
    parts += [f"Note: {_markdown_text(note)}" for note in outcome.notes]
    return "\n\n".join(parts) + "\n"


def _markdown_row(cells: Cells) -> str:
    return f"| {' | '.join(map(_markdown_text, cells))} |"


def _markdown_text(text: str) -> str:
    return text.replace("|", "&#124;").replace("*", r"\*")


def latex(outcome: Outcome) -> str:
    """The tables as LaTeX, in the form of the paper's own (packages booktabs and amssymb)."""
    return "\n".join(_latex_table(table) for table in outcome.tables)


def _latex_table(table: Table) -> str:
    lines = [
        r"\begin{table}[htbp]",
        r"\centering",
        rf"\caption{{{_latex_text(table.caption)}}}",
        rf"\begin{{tabular}}{{l|{'c' * (len(table.head) - 1)}}}",
        r"\toprule",
        _latex_row(table.head),
        r"\midrule",
        *(_latex_row(row) for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
        "",
    ]
    return "\n".join(lines)


def _latex_row(cells: Cells) -> str:
    return " & ".join(map(_latex_text, cells)) + r" \\"


_LATEX: dict[str, str | int | None] = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "^": r"\^{}",
    "~": r"\~{}",
    "|": r"$|$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "ℓ": r"$\ell$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "γ": r"$\gamma$",
    "η": r"$\eta$",
    "κ": r"$\kappa$",
    "μ": r"$\mu$",
    "ρ": r"$\rho$",
    "σ": r"$\sigma$",
    "φ": r"$\phi$",
    "‖": r"$\|$",
    "²": r"$^2$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "→": r"$\to$",
    "✓": r"$\checkmark$",
    "✗": r"$\times$",
    "–": "--",
    "−": "$-$",
    "…": r"\dots{}",
}


def _latex_text(text: str) -> str:
    return text.translate(str.maketrans(_LATEX))
