"""``fedcanon paper``: the tables and figures of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fedcanon.cli.app import app, console, plain
from fedcanon.errors import FedcanonError, RunStoppedError
from fedcanon.paper.scale import Scale

if TYPE_CHECKING:
    from fedcanon.paper.outcome import Outcome


class Name(StrEnum):
    """The tables and figures that can be reproduced."""

    prox = "prox"
    properties = "properties"
    costs = "costs"
    datasets = "datasets"
    fig1 = "fig1"
    fig2 = "fig2"
    fig3 = "fig3"
    time = "time"
    accuracy = "accuracy"
    theory = "theory"
    all = "all"


@app.command()
def paper(
    name: Annotated[Name, typer.Argument(help="A table or figure.", show_default=False)],
    scale: Annotated[
        Scale, typer.Option(help="A minute, an hour (a row of accuracy: hours), or as the paper's.")
    ] = Scale.laptop,
    folder: Annotated[
        Path | None,
        typer.Option(help="Where results and runs are kept; runs/paper without it."),
    ] = None,
    row: Annotated[
        list[str] | None,
        typer.Option(help="Only this row of accuracy, such as cifar10-cnn-iid; may be repeated."),
    ] = None,
) -> None:
    """Reproduce a table or figure of the paper as a JSON file, tables, a picture and a verdict.

    Every training is kept as a run: after an interruption, the same command continues.
    """
    from fedcanon.paper.items import ITEMS
    from fedcanon.runs.folder import runs_folder

    parent = (folder or runs_folder() / "paper") / scale
    if row and name is not Name.accuracy:
        raise FedcanonError("--row is for accuracy alone: other items have no rows to choose.")
    if name is not Name.all:
        _reproduce(str(name), scale, parent / name, row or ())
        return
    failed = []
    for number, item in enumerate(ITEMS):
        if number:
            console.rule(style="dim")
        try:
            _reproduce(item, scale, parent / item)
        except RunStoppedError:
            raise
        except FedcanonError as error:  # a missing dataset keeps no other item from running
            console.print(f"[red]{plain(f'{item}: {error}')}[/]")
            failed.append(item)
    if failed:
        raise FedcanonError(f"not run: {', '.join(failed)}; the reasons are above.")


def _reproduce(item: str, scale: Scale, folder: Path, rows: Sequence[str] = ()) -> None:
    from fedcanon.cli.progress import Bars
    from fedcanon.paper import accuracy
    from fedcanon.paper.items import ITEMS
    from fedcanon.paper.outcome import write
    from fedcanon.paper.trials import Trainer

    written: list[Path] = []
    run = partial(accuracy.run, only=rows) if rows else ITEMS[item]
    try:
        for outcome in run(scale, Trainer(folder / "runs", Bars())):
            written = write(item, outcome, folder)
    except RunStoppedError:
        raise RunStoppedError("stopped: the same command goes on with what is missing.") from None
    _show(outcome)
    console.print(f"\n[dim]written to[/] {plain(folder)}: ", end="")
    console.print(", ".join(path.name for path in written))


def _show(outcome: Outcome) -> None:
    console.print(Text(f"{outcome.title} · scale {outcome.scale}", style="bold"))
    for table in outcome.tables:
        console.print()
        console.print(Text(table.caption, style="italic"))
        shown = Table(box=None, padding=(0, 1), header_style="dim")
        for index, column in enumerate(table.head):
            shown.add_column(plain(column), justify="right" if index else "left")
        for row in table.rows:
            shown.add_row(*map(plain, row))
        console.print(shown)
    marks = {True: "[green]✓[/]", False: "[red]✗[/]", None: "[dim]·[/]"}
    for claim in outcome.claims:
        lines: list[Text | str] = [
            Text(f"claim: {claim.paper}"),
            Text(f"{'constant steps' if claim.best else 'measured'}: {claim.measured}"),
            f"{marks[claim.agrees]} {claim.verdict}",
        ]
        if claim.best:
            lines.append(Text(f"best known steps: {claim.best.measured}"))
            lines.append(f"{marks[claim.best.agrees]} {claim.best.verdict}")
        console.print()
        console.print(Padding(Group(*lines), (0, 0, 0, 1)))
    for note in outcome.notes:
        console.print(Text(f"\nnote: {note}", style="dim"))
