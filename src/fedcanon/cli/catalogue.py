"""``fedcanon list``: what a configuration can name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.table import Table

from fedcanon.algorithms import ALGORITHMS
from fedcanon.cli.app import app, console
from fedcanon.compression import COMPRESSORS
from fedcanon.data import DATASETS
from fedcanon.data.partition import PARTITIONS
from fedcanon.objectives.models import MODELS, Imported
from fedcanon.penalties import PENALTIES


class Kind(StrEnum):
    """What ``fedcanon list`` can list."""

    algorithms = "algorithms"
    penalties = "penalties"
    datasets = "datasets"
    models = "models"
    partitions = "partitions"
    compressors = "compressors"


@app.command("list")
def list_(kind: Annotated[Kind, typer.Argument(help="What to list.")]) -> None:
    """List what a configuration can name, with parameters and their defaults."""
    registries: dict[Kind, Mapping[str, Any]] = {
        Kind.algorithms: ALGORITHMS,
        Kind.penalties: PENALTIES,
        Kind.datasets: DATASETS,
        Kind.models: {**MODELS, "package.module:factory": Imported},
        Kind.partitions: PARTITIONS,
        Kind.compressors: COMPRESSORS,
    }
    table = Table(box=None, padding=(0, 2), header_style="dim")
    for column in ("name", "what it is", "parameters"):
        table.add_column(column)
    for name, entry in registries[kind].items():
        first_line = (inspect.getdoc(entry) or "").partition("\n")[0]
        table.add_row(f"[bold]{name}[/]", first_line, _parameters(entry))
    console.print(table, highlight=False)


def _parameters(entry: Any) -> str:
    if entry is Imported:
        return "those of the factory"
    shown = []
    for parameter in inspect.signature(entry).parameters.values():
        if parameter.name == "name":  # of the entry itself, in a configuration
            continue
        required = parameter.default is inspect.Parameter.empty or "<" in str(parameter.default)
        shown.append(parameter.name if required else f"{parameter.name} = {parameter.default}")
    return ", ".join(shown)
