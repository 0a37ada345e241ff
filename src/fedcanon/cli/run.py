"""``fedcanon run`` and ``fedcanon resume``: train a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedcanon.cli.app import ConfigFile, Settings, Trust, app, console, plain
from fedcanon.cli.watch import live_page

if TYPE_CHECKING:
    from fedcanon.runs import Result
    from fedcanon.runs.config import Config

Plot = Annotated[Path | None, typer.Option(help="Write a picture of the run.")]
Live = Annotated[bool, typer.Option("--live", help="Show the run in the browser while it goes on.")]
Track = Annotated[
    list[str] | None,
    typer.Option(help="Send the run to tensorboard, mlflow or wandb.", metavar="NAME"),
]
EngineName = Annotated[
    str | None,
    typer.Option(
        "--engine",
        help="Where clients run: serial, processes, ray or flower.",
        metavar="NAME",
        show_default=False,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Processes; one for each core by default.", show_default=False),
]


@app.command()
def run(
    config: ConfigFile = None,
    set_: Settings = None,
    plot: Plot = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where the run is kept; a new folder in runs/ by default.")
    ] = None,
    live: Live = False,
    track: Track = None,
    engine: EngineName = None,
    workers: Workers = None,
) -> None:
    """Train a model as a configuration says, keep the run, and print its results."""
    from fedcanon.cli.progress import progress_bar, stage
    from fedcanon.cli.summary import headline
    from fedcanon.runs.build import build
    from fedcanon.runs.config import changed, engine_settings, load_config
    from fedcanon.runs.folder import new_path
    from fedcanon.runs.training import train_in
    from fedcanon.trackers import check_trackers, tracking

    settings = changed(load_config(config, set_ or []), engine_settings(engine, workers))
    if plot:  # only then, because Matplotlib is slow to import
        from fedcanon.runs.plots import check_writable

        check_writable(plot)
    check_trackers(track or [])
    with stage("loading data and model …"):
        federation = build(settings)
    title = headline(settings, federation)
    console.print(f"[bold]{plain(title)}[/]")
    path = folder or new_path(settings)
    with (
        live_page(path, wanted=live),
        tracking(track or [], path) as trackers,
        progress_bar() as bar,
    ):
        result = train_in(path, settings, federation, [bar, *trackers])
    _show(result, settings, title, plot)


@app.command()
def resume(
    name: Annotated[str, typer.Argument(metavar="RUN", help="A run's folder or name.")],
    rounds: Annotated[int | None, typer.Option(min=1, help="Continue up to this round.")] = None,
    plot: Plot = None,
    live: Live = False,
    track: Track = None,
    engine: EngineName = None,
    workers: Workers = None,
    trust: Trust = False,
) -> None:
    """Continue an interrupted run; the result is the same, to the last bit, as without it."""
    from fedcanon.cli.progress import progress_bar
    from fedcanon.runs.folder import RunFolder
    from fedcanon.runs.training import resume as resume_run
    from fedcanon.trackers import check_trackers, tracking

    if plot:  # only then, because Matplotlib is slow to import
        from fedcanon.runs.plots import check_writable

        check_writable(plot)
    check_trackers(track or [])
    run = RunFolder.find(name)
    settings = run.config
    with (
        live_page(run.path, wanted=live),
        tracking(track or [], run.path) as trackers,
        progress_bar() as bar,
    ):
        observers = [bar, *trackers]
        result = resume_run(
            name, rounds=rounds, observers=observers, engine=engine, workers=workers, trust=trust
        )
    _show(result, settings, result.title, plot)


def _show(result: Result, config: Config, title: str, plot: Path | None) -> None:
    from fedcanon.cli.summary import summary

    console.print(summary(list(result.records), result.stopped, config))
    console.print(f"run kept in {plain(result.folder)}", soft_wrap=True)
    if plot:
        from fedcanon.runs.plots import plot_histories, save

        save(plot_histories({"": result.records}, title), plot)
        console.print(f"picture written to {plain(plot)}")
