"""``fedcanon runs`` and ``fedcanon show``: the runs that are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from fedcanon.cli.app import app, console, plain, table_of
from fedcanon.errors import FedcanonError

if TYPE_CHECKING:
    from fedcanon.runs.folder import RunFolder

COLOURS = {"finished": "green", "running": "cyan", "interrupted": "yellow"}


@app.command()
def runs() -> None:
    """List the runs that are kept, oldest first."""
    from fedcanon.runs.folder import list_runs, runs_folder

    found = list_runs()
    if not found:
        console.print(f"no runs in {plain(runs_folder())} yet: 'fedcanon run' makes one.")
        return
    table = table_of("run", numbers=("", "round", "f + h", "accuracy", "zeros"))
    damaged = []
    for run in found:
        try:
            cells = _cells(run)
        except FedcanonError as error:
            cells = ["[red]damaged[/]"]
            damaged.append(str(error))
        table.add_row(plain(run.name), *cells)
    console.print(table)
    for message in damaged:
        console.print(f"[yellow]note[/] {plain(message)}", soft_wrap=True)


def _cells(run: RunFolder) -> list[str]:
    """The status of a run and its last measures, as cells of a table."""
    from fedcanon.report.wording import number

    records, status = run.records(), run.status
    cells = [f"[{COLOURS[status]}]{status}[/]"]
    if records:
        last = records[-1]
        accuracy = last.test.get("accuracy")
        cells += [f"{last.round:,}", number(last.objective, ".4g")]
        cells += ["" if accuracy is None else f"{accuracy:.4f}", f"{last.sparsity:.1%}"]
    return cells


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="RUN", help="A run's folder or name.")],
) -> None:
    """Show a run: its settings, its results, and what it was made with."""
    from fedcanon.cli.summary import summary, two_columns
    from fedcanon.report.page.head import facts_of
    from fedcanon.runs.folder import RunFolder

    run = RunFolder.find(name)
    config, made, records, ending = run.config, run.environment, run.records(), run.result
    status = run.status
    facts: dict[str, str | Text] = {"run": str(run.path), "status": Text(status, COLOURS[status])}
    facts |= facts_of(config, run.data)
    if made is not None:
        facts |= {"started": made.started, "versions": made.software, "commit": made.commit or ""}
        facts |= {"hardware": made.hardware}
    console.print(two_columns(facts))
    if records:
        stopped = status if ending is None else ending.stopped
        console.print(summary(records, stopped, config))
