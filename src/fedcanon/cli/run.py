"""``fedcanon run``: train as a configuration says."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedcanon.cli.app import ConfigFile, Settings, app, console
from fedcanon.compression import Identity
from fedcanon.penalties import PerLayer
from fedcanon.report.plots import check_writable, plot_histories, save
from fedcanon.runs import Federation, Record, Result, train
from fedcanon.runs.build import build
from fedcanon.runs.config import Config, load_config


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
    lines = [_described(federation.algorithm), problem_headline(settings, federation)]
    if not isinstance(federation.compressor, Identity):
        lines.insert(1, f"uploads through {_described(federation.compressor)}")
    headline = "\n".join(lines)
    console.print(f"[bold]{escape(headline)}[/]", highlight=False)
    result = train_with_progress(settings, federation)
    console.print(_summary(result, federation))
    if plot:
        save(plot_histories({"": result.history}, headline), plot)
        console.print(f"picture written to {escape(str(plot))}", highlight=False)


def problem_headline(config: Config, federation: Federation) -> str:
    """Penalty and problem, a line each."""
    clients = f"{config.clients.count} clients"
    if federation.participants != config.clients.count:
        clients = f"{federation.participants} of {clients} per round"
    penalty = federation.penalty
    terms = [term for _, term in penalty.placed] if isinstance(penalty, PerLayer) else [penalty]
    return (
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


def train_with_progress(config: Config, federation: Federation, label: str = "") -> Result:
    """Train as the configuration says, behind a progress bar."""
    columns = (
        TextColumn(f"{label} round" if label else "round"),
        MofNCompleteColumn(),
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[measures]}"),
    )
    shown = console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=not shown) as progress:
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
        "bytes": f"{byte_count(cost.bytes_down)} down, {byte_count(cost.bytes_up)} up",
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


def byte_count(count: float) -> str:
    """A number of bytes, readable."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
