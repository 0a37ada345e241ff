"""``fedcanon sweep``: runs with many combinations of settings, and the best of them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
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
    from fedcanon.objectives.problem import MEASURES
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
    asked = Sweep(config, _with_validation(config, set_ or [], goal), space, goal, sampler, trials)
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
    if len(ranked) > BEST:
        console.print(f"[dim]The best {BEST} of {len(ranked)} trials; trials.csv has all.[/]")
    if goal.measure in MEASURES:
        console.print(_tested(asked, path, ranked[0]), soft_wrap=True)
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


def _with_validation(config: Path | None, settings: list[str], goal: Goal) -> tuple[str, ...]:
    """The settings, with samples held out if trials are judged on samples that are not trained on.

    Whoever chooses by the test data has none left that would tell how good the choice is.
    """
    from fedcanon.objectives.problem import MEASURES
    from fedcanon.runs.config import load_config
    from fedcanon.search.selection import HELD_OUT

    given = "validation" in load_config(config, settings).data.model_fields_set
    if goal.measure in MEASURES and not given:
        return (*settings, f"data.validation={HELD_OUT}")
    return tuple(settings)


def _tested(sweep: Sweep, path: Path, best: Trial) -> str:
    """What the models of the best trial reach on the test data, which have chosen nothing."""
    from fedcanon.export.evaluation import evaluate
    from fedcanon.export.trained import trained
    from fedcanon.report.wording import mean_and_deviation
    from fedcanon.runs.named import make_dataset
    from fedcanon.search.sweep import run_path

    share = sweep.base.data.validation
    if not share:
        return (
            f"[yellow]note[/] trial {best.number} was chosen by the test data, which therefore "
            "make it look better than it is: leave out data.validation=0."
        )
    accuracies = []
    for seed in sweep.seeds:
        network = trained(run_path(path, best, seed), trust=True)  # its code was named just now
        dataset = make_dataset(network.run.config.data.source)
        accuracies.append(evaluate(network.module, dataset.test, dataset.classes).accuracy)
    mean, deviation = mean_and_deviation(accuracies)
    spread = f" ± {deviation:.1g}" if len(accuracies) > 1 else ""
    return (
        f"trial {best.number}, chosen on {share:.0%} of each client's samples, has test accuracy "
        f"{mean:.4f}{spread}"
    )


def _headline(sweep: Sweep) -> str:
    size, seeds = sweep.size, len(sweep.seeds)
    runs = f"{size} trials × {seeds} seeds" if seeds > 1 else f"{size} trials"
    goal = f"{'largest' if sweep.goal.maximise else 'smallest'} {sweep.judged}"
    return f"{sweep.sampler} · {runs} · {goal}".replace("_", " ")


@contextmanager
def _bar(sweep: Sweep) -> Iterator[WatchSweep]:
    """Show how far a sweep is: runs done, and the best value so far."""
    from fedcanon.cli.progress import meter

    with meter("run", sweep.size * len(sweep.seeds)) as tell:

        def watch(done: int, trials: Sequence[Trial]) -> None:
            ranked = _ranked(sweep, trials)
            tell(done, f"best {_value(ranked[0])}" if ranked else "")

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
    table.add_column(sweep.judged.replace("_", " "), justify="right", no_wrap=True)
    for trial in trials:
        settings = [trial.params[key] for key in sweep.space.axes]
        shown = [f"{v:.4g}" if isinstance(v, float) else plain(v) for v in settings]
        table.add_row(str(trial.number), *shown, _value(trial))
    return table
