"""``fedcanon list``: the algorithms, penalties, … that a configuration can name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

from fedcanon.algorithms import ALGORITHMS
from fedcanon.cli.app import app, console, table_of
from fedcanon.compression import COMPRESSORS
from fedcanon.data import DATASETS
from fedcanon.data.partition import PARTITIONS
from fedcanon.objectives.losses import LOSSES
from fedcanon.objectives.models import MODELS, Imported
from fedcanon.penalties import PENALTIES


class Catalogue(StrEnum):
    """The lists that ``fedcanon list`` can print."""

    algorithms = "algorithms"
    penalties = "penalties"
    datasets = "datasets"
    models = "models"
    partitions = "partitions"
    compressors = "compressors"
    losses = "losses"


@app.command("list")
def list_(kind: Annotated[Catalogue, typer.Argument(help="What to list.")]) -> None:
    """List the algorithms, penalties, datasets, … with their parameters and defaults."""
    registries: dict[Catalogue, Mapping[str, Any]] = {
        Catalogue.algorithms: ALGORITHMS,
        Catalogue.penalties: PENALTIES,
        Catalogue.datasets: DATASETS,
        Catalogue.models: {**MODELS, "package.module:factory": Imported},
        Catalogue.partitions: PARTITIONS,
        Catalogue.compressors: COMPRESSORS,
        Catalogue.losses: LOSSES,
    }
    table = table_of("name", "what it is", "parameters")
    for name, entry in registries[kind].items():
        first_line = (inspect.getdoc(entry) or "").partition("\n")[0]
        table.add_row(f"[bold]{name}[/]", first_line, _parameters(entry))
    console.print(table)


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
