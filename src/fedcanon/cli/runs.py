"""``fedcanon runs`` and ``fedcanon show``: what has been run."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from fedcanon.cli.app import app, console
from fedcanon.cli.wording import summary, two_columns
from fedcanon.runs.config import CLIENTS_OWN, DEPLOYED, Config
from fedcanon.runs.folder import RunFolder, list_runs, runs_folder

COLOURS = {"finished": "green", "running": "cyan", "interrupted": "yellow"}


@app.command()
def runs() -> None:
    """List the runs that are kept, oldest first."""
    found = list_runs()
    if not found:
        console.print(f"no runs in {runs_folder()} yet: 'fedcanon run' makes one.")
        return
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("run", overflow="fold")
    for column in ("", "round", "f + h", "accuracy", "zeros"):
        table.add_column(column, justify="right", no_wrap=True)
    for run in found:
        records, status = run.records(), run.status
        cells = [f"[{COLOURS[status]}]{status}[/]"]
        if records:
            last = records[-1]
            accuracy = last.test.get("accuracy")
            cells += [f"{last.round:,}", f"{last.objective:.4g}"]
            cells += ["" if accuracy is None else f"{accuracy:.4f}", f"{last.sparsity:.1%}"]
        table.add_row(escape(run.name), *cells)
    console.print(table, highlight=False)


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="RUN", help="A run's folder or name.")],
) -> None:
    """Summarise a run: settings, how it went, what it was made with."""
    run = RunFolder.find(name)
    config, environment, records = run.config, run.environment, run.records()
    versions = environment.get("versions", {})
    status = run.status
    facts = {
        "run": escape(str(run.path)),
        "status": f"[{COLOURS[status]}]{status}[/]",
        "started": environment.get("started", ""),
        "algorithm": _table(config.algorithm),
        "penalty": _table(config.penalty),
        "data": _data(config),
        "model": _table(config.model.model_dump()),
        "seed": str(config.seed),
        "versions": ", ".join(f"{k} {v}" for k, v in versions.items()),
        "commit": environment.get("commit") or "",
        "hardware": f"{environment.get('processor', '')}, {environment.get('cores')} cores, "
        f"{environment.get('memory_gib')} GiB",
    }
    console.print(two_columns(facts), highlight=False)
    if records:
        stopped = (run.result or {}).get("stopped", status)
        console.print(summary(records, stopped, config), highlight=False)


def _data(config: Config) -> str:
    own = [config.data.name, config.data.partition]
    named = [CLIENTS_OWN] if config.engine.name == DEPLOYED else own
    return ", ".join([*named, f"{config.clients.count} clients"])


def _table(settings: dict[str, object]) -> str:
    own = ", ".join(f"{key} = {value}" for key, value in settings.items() if key != "name")
    name = str(settings.get("name", ""))
    return escape(f"{name}: {own}" if name and own else name or own)
