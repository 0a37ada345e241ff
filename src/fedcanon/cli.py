"""The command line."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedcanon import __version__
from fedcanon.algorithms import ALGORITHMS
from fedcanon.data import DATASETS, make_partition
from fedcanon.data.partition import PARTITIONS
from fedcanon.engines.randomness import Purpose, generator
from fedcanon.errors import FedcanonError
from fedcanon.objectives.models import MODELS, Imported
from fedcanon.penalties import PENALTIES, PerLayer
from fedcanon.report.partition import (
    client_table,
    label_counts,
    label_skew,
    plot_partition,
    size_skew,
)
from fedcanon.report.plots import check_writable, plot_history, save
from fedcanon.runs import Federation, Record, Result, train
from fedcanon.runs.build import build
from fedcanon.runs.check import Condition, check_config
from fedcanon.runs.config import Config, load_config
from fedcanon.runs.named import make_dataset

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()

ConfigFile = Annotated[
    Path | None, typer.Argument(help="TOML file; the default run without one.", show_default=False)
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a setting: algorithm.beta=0.05.", metavar="KEY=VALUE"),
]


def _show_version(wanted: bool) -> None:
    if wanted:
        console.print(f"fedcanon {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def common(
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Composite federated learning: minimise f + h over clients that keep their data."""


def main() -> None:
    """Run the command line; a user's mistake ends with one message and exit code 2."""
    # One thread gives the same bits on every machine and does not stall when cores are busy.
    torch.set_num_threads(1)
    try:
        app()
    except FedcanonError as error:
        message = f"[bold red]error:[/] {escape(str(error))}"
        Console(stderr=True).print(message, highlight=False, soft_wrap=True)
        sys.exit(2)


@app.command()
def run(
    config: ConfigFile = None,
    set_: Settings = None,
    plot: Annotated[Path | None, typer.Option(help="Write a picture of the run.")] = None,
) -> None:
    """Train a model as a configuration says, and print how it went."""
    settings = load_config(config, set_ or [])
    if plot:
        check_writable(plot)
    with console.status("loading data and model …"):
        federation = build(settings)
    console.print(f"[bold]{_headline(settings, federation)}[/]", highlight=False)
    result = _train_with_progress(settings, federation)
    console.print(_summary(result, federation))
    if plot:
        save(plot_history(result.history, _headline(settings, federation)), plot)
        console.print(f"picture written to {escape(str(plot))}", highlight=False)


def _headline(config: Config, federation: Federation) -> str:
    """Method, penalty and problem, a line each."""
    clients = f"{config.clients.count} clients"
    if federation.participants != config.clients.count:
        clients = f"{federation.participants} of {clients} per round"
    penalty = federation.penalty
    terms = [term for _, term in penalty.placed] if isinstance(penalty, PerLayer) else [penalty]
    return (
        f"{_described(federation.algorithm)}\n"
        f"{', '.join(dict.fromkeys(map(_described, terms)))}\n"
        f"{federation.problem.about} · {clients} · {config.data.partition} · "
        f"{config.model.name} with {len(federation.model):,} parameters"
    )


def _described(entry: Any) -> str:
    """Name and parameters, without those left unset."""
    settings = {f.name: getattr(entry, f.name) for f in dataclasses.fields(entry)}
    shown = ", ".join(
        f"{name} = {f'{len(value)} values' if isinstance(value, tuple) else value}"
        for name, value in settings.items()
        if value is not None
    )
    return f"{type(entry).__name__}: {shown}" if shown else type(entry).__name__


def _train_with_progress(config: Config, federation: Federation) -> Result:
    columns = (
        TextColumn("round"),
        MofNCompleteColumn(),
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[measures]}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("training", total=config.rounds, measures="")
        return train(
            federation,
            config.rounds,
            evaluate_every=config.evaluate.every,
            gradient=config.evaluate.gradient,
            gradient_step=config.evaluate.step,
            gradient_tolerance=config.stop.gradient,
            objective_tolerance=config.stop.objective,
            on_round=lambda t: progress.update(task, completed=t),
            on_record=lambda record: progress.update(task, measures=_live(record)),
        )


def _live(record: Record) -> str:
    accuracy = record.test.get("accuracy")
    shown = "" if accuracy is None else f" · accuracy {accuracy:.3f}"
    return f"loss {record.loss:.4f}{shown} · zeros {record.sparsity:.1%}"


def _summary(result: Result, federation: Federation) -> Table:
    last, cost = result.last, result.last.cost
    rows = {
        "rounds": f"{last.round} ({result.stopped})",
        "loss f": f"{last.loss:.6g}",
        "objective f + h": f"{last.objective:.6g}",
        "stationarity ‖G‖": "" if last.gradient_norm is None else f"{last.gradient_norm:.3g}",
        **{f"test {k.removeprefix('test_')}": f"{v:.4f}" for k, v in last.test.items()},
        "exact zeros": f"{last.zeros:,} ({last.sparsity:.1%} of the penalised weights)",
        "prox calls": f"{cost.server_prox:,} server, {cost.client_prox:,} clients",
        "floats": f"{cost.floats_down:,} down, {cost.floats_up:,} up",
        "bytes": f"{_bytes(cost.bytes_down)} down, {_bytes(cost.bytes_up)} up",
        "seconds": f"{cost.seconds:.1f} training, "
        f"{sum(record.evaluation_seconds for record in result.history):.1f} measuring",
    }
    table = Table(show_header=False, box=None, padding=(0, 2))
    for name, shown in rows.items():
        if shown:
            table.add_row(f"[dim]{name}[/]", shown)
    if federation.algorithm.solves == "f":
        name = type(federation.algorithm).__name__
        table.add_row("[yellow]note[/]", f"{name} minimises f alone; the penalty is only measured")
    return table


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


@app.command()
def check(
    config: ConfigFile = None,
    set_: Settings = None,
    mu: Annotated[float | None, typer.Option(help="PL constant μ, to check Theorem 2.")] = None,
) -> None:
    """Tell which step-size conditions a configuration meets or breaks, and what would mend it."""
    with console.status("estimating the smoothness L …"):
        report = check_config(load_config(config, set_ or []), mu)
    console.print(f"L ≈ {report.L:.4g} (power iteration at the start), ρ = {report.rho:.4g}")
    table = Table(box=None, padding=(0, 2), header_style="dim")
    for column in ("", "condition", "setting", "limit"):
        table.add_column(column)
    for condition in report.conditions:
        mark = "[green]✓[/]" if condition.holds else _broken_mark(condition)
        setting = f"{condition.setting} = {condition.value:.4g}"
        table.add_row(mark, condition.reason, setting, f"{condition.limit:.4g}")
    console.print(table, highlight=False)
    if not report.in_theory:
        console.print("The penalty is not weakly convex: no theorem covers it. MCP and SCAD are.")
    for setting, value in report.remedy.items():
        console.print(f"{setting} = {value:.3g} or less would meet every condition on it.")
    if report.remedy:
        console.print("[dim]✗ must hold; – is sufficient, and runs often converge without it.[/]")
    if any(condition.required and not condition.holds for condition in report.conditions):
        raise typer.Exit(1)


def _broken_mark(condition: Condition) -> str:
    return "[red]✗[/]" if condition.required else "[yellow]–[/]"


@app.command()
def data(
    name: Annotated[str, typer.Argument(help="A dataset.", show_default=False)],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="An option of the dataset.", metavar="KEY=VALUE"),
    ] = None,
    partition: Annotated[str, typer.Option(help="How it is spread.")] = "dirichlet:0.2",
    clients: Annotated[int, typer.Option(min=1, help="Number of clients.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Seed, as in a configuration.")] = 0,
    plot: Annotated[Path | None, typer.Option(help="Write a picture of the partition.")] = None,
) -> None:
    """Show a dataset, and how differently a partition fills the clients of a run."""
    options = [f"data.{setting}" for setting in set_ or []]
    for option in options:
        if option.startswith(("data.name=", "data.partition=", "data.augment=")):
            raise FedcanonError(f"{option} is no option of a dataset: use NAME and --partition.")
    source = load_config(settings=[f"data.name={name}", *options]).data.source
    rule = make_partition(partition)
    if plot:
        check_writable(plot)
    with console.status("loading data …"):
        dataset = make_dataset(source)
        train = dataset.train
        rng = generator(seed, Purpose.PARTITION)
        parts = rule.parts(train.targets, clients, rng, train.users)
        counts = label_counts(train.targets, parts, dataset.classes)
    shape = "×".join(map(str, dataset.shape))
    console.print(
        f"[bold]{escape(dataset.name)}[/] · {len(train):,} training and "
        f"{len(dataset.test):,} test samples · {dataset.classes} classes · inputs {shape}",
        highlight=False,
    )
    if dataset.note:
        console.print(f"[yellow]note[/] {escape(dataset.note)}", highlight=False)
    headline = f"{dataset.name} · {clients:,} clients · {partition} · seed {seed}"
    about = (inspect.getdoc(rule) or "").partition("\n")[0]
    console.print(f"[bold]{escape(partition)}[/] · {about}\n", highlight=False)
    console.print(client_table(counts), highlight=False)
    console.print(
        f"\nlabel skew {label_skew(counts):.3f} · mean total-variation distance from all labels\n"
        f"size skew  {size_skew(counts):.3f} · standard deviation of the sizes over their mean",
        highlight=False,
    )
    if plot:
        save(plot_partition(counts, headline), plot)
        console.print(f"picture written to {escape(str(plot))}", highlight=False)


class Kind(StrEnum):
    """What ``fedcanon list`` can list."""

    algorithms = "algorithms"
    penalties = "penalties"
    datasets = "datasets"
    models = "models"
    partitions = "partitions"


@app.command("list")
def list_(kind: Annotated[Kind, typer.Argument(help="What to list.")]) -> None:
    """List what a configuration can name, with parameters and their defaults."""
    registries: dict[Kind, Mapping[str, Any]] = {
        Kind.algorithms: ALGORITHMS,
        Kind.penalties: PENALTIES,
        Kind.datasets: DATASETS,
        Kind.models: {**MODELS, "package.module:factory": Imported},
        Kind.partitions: PARTITIONS,
    }
    table = Table(box=None, padding=(0, 2), header_style="dim")
    for column in ("name", "what it is", "parameters"):
        table.add_column(column)
    for name, entry in registries[kind].items():
        first_line = (inspect.getdoc(entry) or "").partition("\n")[0]
        table.add_row(f"[bold]{name}[/]", first_line, _parameters(entry))
    console.print(table, highlight=False)


def _parameters(entry: Any) -> str:
    shown = []
    for parameter in inspect.signature(entry).parameters.values():
        required = parameter.default is inspect.Parameter.empty or "<" in str(parameter.default)
        shown.append(parameter.name if required else f"{parameter.name} = {parameter.default}")
    return ", ".join(shown)
