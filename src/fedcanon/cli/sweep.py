"""``fedcanon sweep``: runs with many combinations of settings, and the best of them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedcanon.cli.app import ConfigFile, Settings, app, console, plain, table_of
from fedcanon.errors import FedcanonError
from fedcanon.search.goal import Goal
from fedcanon.search.sampler import Sampler

if TYPE_CHECKING:
    from fedcanon.search.space import Space
    from fedcanon.search.sweep import Sweep, WatchSweep
    from fedcanon.search.trials import Trial

BEST = 10
"""How many of the best trials are printed."""

TRIALS = 20
"""How many trials random and tpe make by default."""


@app.command()
def sweep(
    config: ConfigFile = None,
    over: Annotated[
        list[str] | None,
        typer.Option(
            help="Vary a setting: algorithm.beta=0.03,0.1 or penalty.kappa=1e-4:1e-2:log. "
            "seed=0,1,2 repeats every trial with these seeds.",
            metavar="KEY=VALUES",
            show_default=False,
        ),
    ] = None,
    sampler: Annotated[
        Sampler | None,
        typer.Option(help="grid by default, tpe if a range is given.", show_default=False),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help=f"Trials of random and tpe; {TRIALS} by default.")
    ] = None,
    minimise: Annotated[
        str | None,
        typer.Option(help="The measure to make small; objective by default.", metavar="MEASURE"),
    ] = None,
    maximise: Annotated[
        str | None, typer.Option(help="The measure to make large.", metavar="MEASURE")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="Where the runs are kept; the same command finds it in runs/ again."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Worker processes; one for each core by default.")
    ] = None,
    set_: Settings = None,
) -> None:
    """Run all combinations of some settings, or search for good ones, and print the best."""
    if importlib.util.find_spec("optuna") is None:
        raise FedcanonError('a sweep needs a package: pip install "fedcanon[sweep]".')
    from fedcanon.engines.processes import cores
    from fedcanon.runs.plots import save
    from fedcanon.search.search_folder import default_path
    from fedcanon.search.space import parse_space
    from fedcanon.search.sweep import Sweep, run_sweep
    from fedcanon.search.sweep_picture import plot_sweep
    from fedcanon.search.trials import TrialStatus

    space = parse_space(over or [])
    if not (space.axes or space.seeds):
        raise FedcanonError("say what to vary, such as --over algorithm.beta=0.03,0.1.")
    if sampler is None:
        sampler = Sampler.tpe if space.ranges else Sampler.grid
    if trials is None and sampler is not Sampler.grid:
        trials = TRIALS
    goal = _goal(minimise, maximise, space)
    asked = Sweep(config, tuple(set_ or ()), space, goal, sampler, trials)
    path = folder or default_path("sweep", asked.base, asked.identity)
    console.print(f"[bold]{plain(_headline(asked))}[/]")
    with _bar(asked) as watch:
        found = run_sweep(asked, path, workers or cores(), watch)
    failed = [trial for trial in found if trial.state is TrialStatus.failed]
    ranked = _ranked(asked, found)
    if failed:
        first = f"{len(failed)} of {len(found)} trials failed; trial {failed[0].number}:"
        console.print(f"[yellow]{first}[/] {plain(failed[0].error)}")
    if not ranked:
        raise typer.Exit(1)
    console.print(_table(asked, ranked[:BEST]))
    save(plot_sweep(asked, found, ranked[0], _headline(asked)), path / "trials.png")
    kept = f"runs, trials.csv and trials.png kept in {path}"
    console.print(plain(kept), soft_wrap=True)


def _goal(minimise: str | None, maximise: str | None, space: Space) -> Goal:
    if minimise and maximise:
        raise FedcanonError("a sweep has one goal: give --minimise or --maximise, not both.")
    if not (minimise or maximise) and any(key.startswith("penalty") for key in space.axes):
        raise FedcanonError(
            "f + h cannot be compared between penalties: choose another measure, such as "
            "--minimise test_loss or --maximise accuracy."
        )
    return Goal(maximise or minimise or "objective", maximise is not None)


def _headline(sweep: Sweep) -> str:
    size, seeds = sweep.size, len(sweep.seeds)
    runs = f"{size} trials × {seeds} seeds" if seeds > 1 else f"{size} trials"
    goal = f"{'largest' if sweep.goal.maximise else 'smallest'} {sweep.goal.measure}"
    return f"{sweep.sampler} · {runs} · {goal}".replace("_", " ")


@contextmanager
def _bar(sweep: Sweep) -> Iterator[WatchSweep]:
    """Show a progress bar during a sweep: runs done, and the best value so far."""
    columns = (
        TextColumn("run"),
        MofNCompleteColumn(),
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[best]}"),
    )
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        task = progress.add_task("", total=sweep.size * len(sweep.seeds), best="")

        def watch(done: int, trials: Sequence[Trial]) -> None:
            ranked = _ranked(sweep, trials)
            best = f"best {_value(ranked[0])}" if ranked else ""
            progress.update(task, completed=done, best=best)

        yield watch


def _ranked(sweep: Sweep, trials: Sequence[Trial]) -> list[Trial]:
    """The finished trials, best first."""
    finished = [trial for trial in trials if trial.values]
    return sorted(finished, key=lambda trial: trial.mean, reverse=sweep.goal.maximise)


def _value(trial: Trial) -> str:
    spread = "" if trial.deviation is None else f" ± {trial.deviation:.1g}"
    return f"{trial.mean:.5g}{spread}"


def _table(sweep: Sweep, trials: Sequence[Trial]) -> Table:
    table = table_of(numbers=["trial"])
    for key in sweep.space.axes:
        table.add_column(plain(key), justify="right", overflow="fold")
    table.add_column(sweep.goal.measure.replace("_", " "), justify="right", no_wrap=True)
    for trial in trials:
        settings = [trial.params[key] for key in sweep.space.axes]
        shown = [f"{v:.4g}" if isinstance(v, float) else plain(v) for v in settings]
        table.add_row(str(trial.number), *shown, _value(trial))
    return table
