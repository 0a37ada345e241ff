"""``fedcanon compare``: several algorithms on one configuration, in a table and a picture."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from fedcanon.cli.app import Settings, app, console, plain, table_of
from fedcanon.errors import FedcanonError, RunStoppedError
from fedcanon.runs.against import Against

if TYPE_CHECKING:
    from fedcanon.report.comparison import Row
    from fedcanon.runs import Record, Result
    from fedcanon.runs.config import Config

    Results = dict[str, dict[int, Result]]
    """What was reached, by algorithm and seed."""


@app.command()
def compare(
    what: Annotated[
        list[str],
        typer.Argument(
            help="A TOML file, if it is not the default run; then algorithms, with their own "
            "settings if need be: fedmid:server_prox=none.",
            metavar="[CONFIG.toml] ALGORITHM...",
            show_default=False,
        ),
    ],
    set_: Settings = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            help="Seeds to repeat all runs with, such as 0,1,2.",
            metavar="SEEDS",
            show_default=False,
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="A new folder for the runs, the table (CSV, LaTeX) and a figure."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a picture of all runs.")] = None,
    against: Annotated[
        Against, typer.Option(help="What the picture's curves are drawn against.")
    ] = (Against.rounds),
) -> None:
    """Train with several algorithms on the same data, start, batches and participants."""
    from fedcanon.report.comparison import reasons, rows
    from fedcanon.runs.compare import variants
    from fedcanon.runs.config import changed, load_config
    from fedcanon.runs.plots import check_writable, plot_means, save
    from fedcanon.search.space import parse_space

    config, algorithms = (Path(what[0]), what[1:]) if what[0].endswith(".toml") else (None, what)
    if not algorithms:
        raise FedcanonError("say what to compare, such as fedcanon+ fedavg.")
    runs = variants(load_config(config, set_ or []), algorithms)
    first = next(iter(runs.values()))
    numbers = (first.seed,) if seeds is None else parse_space([f"seed={seeds}"]).seeds
    if plot:
        check_writable(plot)
    if folder and folder.exists():
        raise FedcanonError(f"the folder {folder} exists already: choose another --folder.")
    headline, methods = _checked(runs, changed(first, {"seed": numbers[0]}))
    console.print(f"[bold]{plain(headline)}[/]")
    for method in methods:
        console.print(f"[dim]{plain(method)}[/]")
    results, failed = _results(runs, numbers, folder)
    for sentence in failed:
        console.print(f"[red]{plain(sentence)}[/]", soft_wrap=True)
    if not results:
        raise typer.Exit(1)
    table = rows({label: {s: r.last for s, r in own.items()} for label, own in results.items()})
    console.print(_shown(table))
    for reason in reasons(table):
        console.print(f"[dim]{plain(reason)}[/]", soft_wrap=True)
    histories = {label: [r.records for r in own.values()] for label, own in results.items()}
    if plot:
        save(plot_means(histories, headline, against), plot)
        console.print(f"picture written to {plain(plot)}")
    if folder:
        _keep(table, results, histories, against, folder)
    if failed:
        raise typer.Exit(1)


def _checked(runs: Mapping[str, Config], first: Config) -> tuple[str, list[str]]:
    """Find the mistakes of all runs before the first, and describe their problem and methods."""
    from fedcanon.cli.progress import stage
    from fedcanon.cli.summary import problem_headline
    from fedcanon.report.page.head import method_of
    from fedcanon.runs.build import assemble, build_problem, check_names, resolved
    from fedcanon.runs.config import changed

    methods = []
    with stage("loading data and model …"):
        for label, settings in runs.items():
            with _named(label):
                check_names(settings)
        problem = build_problem(first)
        for label, settings in runs.items():
            with _named(label):
                federation = assemble(changed(settings, {"seed": first.seed}), problem)
                methods.append(" · ".join(method_of(resolved(settings, federation))))
                federation.penalty.check_step(federation.algorithm.prox_step(settings.rounds))
    return problem_headline(first, federation), methods


def _results(
    runs: Mapping[str, Config], seeds: Sequence[int], folder: Path | None
) -> tuple[Results, list[str]]:
    """Train every algorithm with every seed; also a sentence for each run that failed."""
    from fedcanon.cli.progress import progress_bar
    from fedcanon.runs.build import assemble, build_problem
    from fedcanon.runs.config import changed
    from fedcanon.runs.training import fit_as, train_in

    results: Results = {}
    failed = []
    for seed in seeds:
        problem = build_problem(changed(next(iter(runs.values())), {"seed": seed}))
        for number, (label, settings) in enumerate(runs.items()):
            own = changed(settings, {"seed": seed})
            name = f"{label}, seed {seed}" if len(seeds) > 1 else label
            try:
                with progress_bar(name) as bar:
                    federation = assemble(own, problem)
                    if folder is None:
                        result = fit_as(own, federation, observers=[bar])
                    else:
                        words = re.sub(r"[^\w.+=]+", "_", label)
                        path = folder / "runs" / f"{number}-{words}-seed-{seed}"
                        result = train_in(path, own, federation, [bar])
                results.setdefault(label, {})[seed] = result
            except RunStoppedError:
                raise
            except FedcanonError as error:  # a method that diverges must not cost the others
                failed.append(f"{name}: {error}")
    return {label: results[label] for label in runs if label in results}, failed


@contextmanager
def _named(label: str) -> Iterator[None]:
    """Put the name of a run in front of its error messages."""
    try:
        yield
    except FedcanonError as error:
        raise FedcanonError(f"{label}: {error}") from None


def _shown(table: Sequence[Row]) -> Table:
    """Means and, in a line of their own below, deviations."""
    from fedcanon.report.comparison import COLUMNS

    shown = table_of("", numbers=list(COLUMNS))
    for row in table:
        shown.add_row(plain(row.method), *row.means())
        if len(row.seeds) > 1:
            seeds = f"  {len(row.seeds)} seeds"
            shown.add_row(seeds, *row.deviations(), style="dim")
    return shown


def _keep(
    table: Sequence[Row],
    results: Results,
    histories: Mapping[str, Sequence[Sequence[Record]]],
    against: Against,
    folder: Path,
) -> None:
    from fedcanon.files import explained, write_whole
    from fedcanon.report.comparison import csv_rows, latex
    from fedcanon.runs.plots import plot_means, save
    from fedcanon.search.search_folder import write_table

    with explained(f"cannot write into {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        write_table(folder / "table.csv", csv_rows(table))
        write_table(
            folder / "runs.csv",
            [
                {"method": label, "seed": seed, **result.last.flat()}
                for label, own in results.items()
                for seed, result in own.items()
            ],
        )
        write_whole(folder / "table.tex", latex(table))
        for name in ("figure.pdf", "figure.png"):
            save(plot_means(histories, "", against, columns=2), folder / name)
    kept = "runs, table.csv, runs.csv, table.tex, figure.pdf and figure.png kept in"
    console.print(f"{kept} {plain(folder)}", soft_wrap=True)
