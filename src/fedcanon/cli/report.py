"""``fedcanon report``: an interactive page about runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcanon.cli.app import app, console, plain


@app.command()
def report(
    names: Annotated[list[str], typer.Argument(metavar="RUN...", help="Folders or names of runs.")],
    report: Annotated[Path, typer.Option("--report", "-o", help="The page.")] = Path("report.html"),
) -> None:
    """Write an interactive page about one run or several; it needs no network."""
    from fedcanon.report.page import check_target, write_report
    from fedcanon.runs.folder import RunFolder

    check_target(report)
    folders = {run.path.resolve(): run for run in map(RunFolder.find, names)}
    with console.status("reading runs …"):
        write_report(list(folders.values()), report)
    console.print(f"report written to {plain(report)}", soft_wrap=True)
