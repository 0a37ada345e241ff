"""``fedcanon export``: a trained network in formats that other programs read."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from fedcanon.cli.app import Trust, app, console, plain, table_of
from fedcanon.errors import FedcanonError
from fedcanon.export.format import Format

if TYPE_CHECKING:
    from torch import nn

    from fedcanon.export.operations import Shape
    from fedcanon.export.trained import Trained
    from fedcanon.objectives import DataSummary

INPUTS = "inputs.json"
"""The file with names, means and deviations of the model's inputs, and names of its classes."""


@app.command()
def export(
    name: Annotated[str, typer.Argument(metavar="RUN", help="A run's folder or name.")],
    folder: Annotated[
        Path | None,
        typer.Option(help="Where files go; RUN/export or RUN/pruned by default."),
    ] = None,
    formats: Annotated[
        list[Format] | None,
        typer.Option("--format", help="A format; may be repeated. All of them by default."),
    ] = None,
    prune_: Annotated[
        bool,
        typer.Option("--prune", help="Remove neurons and channels that do nothing."),
    ] = False,
    trust: Trust = False,
) -> None:
    """Write the model of a finished run in formats that other programs read."""
    from fedcanon.export.formats import dense_size, save
    from fedcanon.export.trained import trained
    from fedcanon.files import explained, write_whole
    from fedcanon.report.wording import byte_count

    network = trained(name, trust=trust)
    module, dense = network.module, dense_size(network.module)
    if prune_:
        module = _pruned(network)
    folder = folder or network.run.path / ("pruned" if prune_ else "export")
    table = table_of("file", numbers=("size", "of dense"))
    failed = []
    for kind in formats or Format:
        path = folder / f"model{kind.suffix}"
        try:
            with console.status(f"writing {path.name} …"):
                save(module, network.shape, path, kind)
        except FedcanonError as error:
            if formats:
                raise
            failed.append(f"{path.name} was not written: {error}")
            continue
        size = path.stat().st_size
        table.add_row(path.name, byte_count(size), f"{size / dense:.1%}")
    if network.data.features or network.data.class_names:
        with explained(f"cannot write into {folder}"):
            write_whole(folder / INPUTS, _inputs(network.data))
        table.add_row(INPUTS, byte_count((folder / INPUTS).stat().st_size), "")
    console.print(table)
    for sentence in failed:
        console.print(f"[yellow]note[/] {plain(sentence)}")
    console.print(f"files written to {plain(folder)}", soft_wrap=True)


def _inputs(data: DataSummary) -> str:
    """What a program must know to use the model: which numbers it takes, and what it tells."""
    names = ("features", "means", "deviations", "class_names")
    return json.dumps({name: getattr(data, name) for name in names}, indent=2)


def _pruned(network: Trained) -> nn.Module:
    """The pruned network; if it cannot be pruned, the network itself, and the reason is printed."""
    from fedcanon.export.pruning import prune, unused_inputs

    module, shape = network.module, network.shape
    try:
        with console.status("pruning …"):
            pruned = prune(module, shape)
            unused = unused_inputs(pruned, shape)
    except FedcanonError as error:
        console.print(f"[yellow]note[/] not pruned: {plain(error)}")
        return module
    if _units(pruned) == _units(module):
        console.print("nothing to prune: every neuron and channel is used.")
    else:
        with console.status("measuring …"):
            table = _comparison(module, pruned, shape)
        console.print(table)
    if unused:
        names = [network.data.features[k] for k in unused] if network.data.features else []
        which = f": {', '.join(names)}" if names else ""
        console.print(f"{len(unused):,} inputs are never used; they stay{plain(which)}.")
    return pruned


def _comparison(before: nn.Module, after: nn.Module, shape: Shape) -> Table:
    """A table of sizes and latencies before and after pruning."""
    from fedcanon.export.formats import dense_size
    from fedcanon.export.latency import latencies
    from fedcanon.report.wording import byte_count

    table = table_of("", numbers=("before", "after", "ratio"))

    def add(what: str, measured: Sequence[float], show: Callable[[float], str]) -> None:
        old, new = measured
        table.add_row(what, show(old), show(new), f"{new / old:.1%}")

    both = before, after
    add("neurons and channels", [*map(_units, both)], "{:,}".format)
    add("parameters", [*map(_parameters, both)], "{:,}".format)
    add("size", [*map(dense_size, both)], byte_count)
    add("latency, 1 sample", latencies(both, shape, 1), _duration)
    add("latency, 256 samples", latencies(both, shape, 256), _duration)
    return table


def _units(module: nn.Module) -> int:
    from fedcanon.export.links import LAYERS

    return sum(len(layer.weight) for layer in module.modules() if isinstance(layer, LAYERS))


def _parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _duration(seconds: float) -> str:
    return f"{1e6 * seconds:.3g} µs" if seconds < 1e-3 else f"{1e3 * seconds:.3g} ms"
