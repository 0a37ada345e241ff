"""``fedcanon list``: the algorithms, penalties, … that a configuration can name."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedcanon.cli.app import app, console, plain, table_of

WRITTEN = Path(__file__).with_name("catalogue.json")
"""What ``python -m fedcanon.cli.registries`` found, so that a list does not wait for PyTorch."""


class Catalogue(StrEnum):
    """The lists that ``fedcanon list`` can print."""

    algorithms = "algorithms"
    schedules = "schedules"
    penalties = "penalties"
    datasets = "datasets"
    partitions = "partitions"
    models = "models"
    losses = "losses"
    compressors = "compressors"
    engines = "engines"
    rules = "rules"
    attacks = "attacks"
    trackers = "trackers"


@app.command("list")
def list_(
    kind: Annotated[
        Catalogue | None, typer.Argument(help="What to list; all names without it.")
    ] = None,
) -> None:
    """List the algorithms, penalties, datasets, … with their parameters and defaults."""
    catalogue = json.loads(WRITTEN.read_text(encoding="utf-8"))
    if kind is None:
        table = table_of("list", "names")
        for each in Catalogue:
            table.add_row(f"[bold]{each}[/]", plain(", ".join(catalogue[each])))
    else:
        table = table_of("name", "what it is", "parameters")
        for name, (what, parameters) in catalogue[kind].items():
            table.add_row(f"[bold]{plain(name)}[/]", plain(what), plain(parameters))
    console.print(table)
