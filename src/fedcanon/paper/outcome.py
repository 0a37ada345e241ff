"""What comes out of an item of the paper at a scale: tables, a figure, verdicts; and its files."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from unicodedata import name

import torch
from matplotlib.figure import Figure

from fedcanon.files import explained, write_whole
from fedcanon.paper.scale import Scale as Scale
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
class Finding:
    """What was measured, and whether it agrees with the paper; None is no verdict."""

    measured: str
    agrees: bool | None

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        if self.agrees is None:
            return "no verdict"
        return "agrees" if self.agrees else "does not agree"


@dataclass(frozen=True)
class Claim:
    """What the paper says, what was measured, and whether they agree; None is no verdict.

    Where methods were run with several kinds of steps, ``measured`` and ``agrees`` are about
    constant ones, which the paper has, and ``best`` is about the best known.
    """

    paper: str
    measured: str
    agrees: bool | None
    best: Finding | None = None

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        return Finding(self.measured, self.agrees).verdict


@dataclass(frozen=True)
class Outcome:
    """The result of one item.

    ``title`` says which data were at hand, ``settings`` all that was chosen, ``data`` every number
    behind tables and figure, ``notes`` what a reader must know.
    """

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
    return [_unjudged(claim) for claim in claims] if scale is Scale.smoke else [*claims]


def _unjudged(claim: Claim) -> Claim:
    best = replace(claim.best, agrees=None) if claim.best else None
    return replace(claim, agrees=None, best=best)


def write(item: str, outcome: Outcome, folder: Path) -> list[Path]:
    """Write ITEM.json, ITEM.md and ITEM.tex, and the figure as ITEM.png and ITEM.pdf."""
    texts = {"json": _json(item, outcome), "md": markdown(outcome), "tex": latex(outcome)}
    paths = [folder / f"{item}.{ending}" for ending in texts]
    with explained(f"cannot write to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in zip(paths, texts.values(), strict=True):
            write_whole(path, text)
    if outcome.figure is not None:
        pictures = [folder / f"{item}.{ending}" for ending in ("png", "pdf")]
        for path in pictures:
            save(outcome.figure, path)
        paths += pictures
    return paths


def _json(item: str, outcome: Outcome) -> str:
    entries = {
        "item": item,
        "title": outcome.title,
        "scale": outcome.scale,
        "settings": outcome.settings,
        "claims": [_told(claim) for claim in outcome.claims],
        "notes": outcome.notes,
        "tables": [asdict(table) for table in outcome.tables],
        "data": outcome.data,
        "versions": {
            "fedcanon": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }
    lines = [f'"{key}": {json.dumps(_plain(v), ensure_ascii=False)}' for key, v in entries.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _told(claim: Claim) -> dict[str, Any]:
    """The claim with its verdicts in words."""
    told = {"paper": claim.paper, "measured": claim.measured, "agrees": claim.agrees}
    best = {**asdict(claim.best), "verdict": claim.best.verdict} if claim.best else None
    return {**told, "verdict": claim.verdict, **({"best": best} if best else {})}


def _plain(value: Any) -> Any:
    """The value as JSON holds it: numbers with six digits, null for those that are not finite."""
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
        parts += [f"*{_markdown_text(table.caption)}*", _markdown_rows(table.head, table.rows)]
    if outcome.claims:
        parts.append(_markdown_rows(*_claim_rows(outcome.claims)))
    parts += [f"Note: {_markdown_text(note)}" for note in outcome.notes]
    return "\n\n".join(parts) + "\n"


def _claim_rows(claims: Sequence[Claim]) -> tuple[Cells, list[Cells]]:
    """The claims as a table: the names of its columns, and its rows."""
    rows: list[Cells] = []
    if all(claim.best is None for claim in claims):
        rows += [(claim.paper, claim.measured, claim.verdict) for claim in claims]
        return ("the paper", "measured", "verdict"), rows
    for claim in claims:
        best = f"{claim.best.verdict}: {claim.best.measured}" if claim.best else "–"
        rows.append((claim.paper, f"{claim.verdict}: {claim.measured}", best))
    return ("the paper", "with constant steps", "with the best known steps"), rows


def _markdown_rows(head: Cells, rows: Sequence[Cells]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_markdown_text, cells))} |" for cells in lines)


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
    **{letter: f"$\\{name(letter).split()[-1].lower()}$" for letter in "αβγηκμρσφ"},
    "^": r"\^{}",
    "~": r"\~{}",
    "|": r"$|$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "ℓ": r"$\ell$",
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
"""What LaTeX needs for a sign; Greek letters have the last words of their Unicode names."""


def _latex_text(text: str) -> str:
    return text.translate(str.maketrans(_LATEX))
