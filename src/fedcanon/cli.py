"""The command line."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Mapping
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedcanon.algorithms import ALGORITHMS
from fedcanon.data import DATASETS
from fedcanon.errors import FedcanonError
from fedcanon.objectives import Logistic
from fedcanon.objectives.models import LOGISTIC, MODELS
from fedcanon.penalties import PENALTIES, PerLayer
from fedcanon.report.plots import plot_history, save
from fedcanon.runs import Federation, Record, Result, train
from fedcanon.runs.build import build
from fedcanon.runs.check import Condition, check_config
from fedcanon.runs.config import Config, load_config

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
        console.print(f"fedcanon {version('fedcanon')}", highlight=False)
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
    with console.status("loading data and model …"):
        federation = build(settings)
    console.print(f"[bold]{_headline(settings, federation)}[/]", highlight=False)
    result = _train_with_progress(settings, federation)
    console.print(_summary(result, federation))
    if plot:
        save(plot_history(result.history, _headline(settings, federation)), plot)
        console.print(f"picture written to {plot}")


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
        f"{config.data.name} · {clients} · {config.data.partition} · "
        f"{config.model.name} with {len(federation.model):,} parameters"
    )


def _described(entry: Any) -> str:
    """Name and parameters, without those left unset."""
    settings = {f.name: getattr(entry, f.name) for f in dataclasses.fields(entry)}
    shown = ", ".join(f"{name} = {value}" for name, value in settings.items() if value is not None)
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


class Kind(StrEnum):
    """What ``fedcanon list`` can list."""

    algorithms = "algorithms"
    penalties = "penalties"
    datasets = "datasets"
    models = "models"


@app.command("list")
def list_(kind: Annotated[Kind, typer.Argument(help="What to list.")]) -> None:
    """List what a configuration can name, with parameters and their defaults."""
    registries: dict[Kind, Mapping[str, Any]] = {
        Kind.algorithms: ALGORITHMS,
        Kind.penalties: PENALTIES,
        Kind.datasets: DATASETS,
        Kind.models: {LOGISTIC: Logistic, **MODELS},
    }
    table = Table(box=None, padding=(0, 2), header_style="dim")
    for column in ("name", "what it is", "parameters"):
        table.add_column(column)
    for name, entry in registries[kind].items():
        first_line = (inspect.getdoc(entry) or "").partition("\n")[0]
        table.add_row(f"[bold]{name}[/]", first_line, _parameters(entry))
    console.print(table, highlight=False)


def _parameters(entry: Any) -> str:
    if not dataclasses.is_dataclass(entry):
        return ""
    shown = []
    for field in dataclasses.fields(entry):
        required = field.default is dataclasses.MISSING
        shown.append(field.name if required else f"{field.name} = {field.default}")
    return ", ".join(shown)
