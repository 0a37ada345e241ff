"""``fedcanon compare``: several algorithms on one configuration, in a table and a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from fedcanon.cli.app import Settings, app, console, plain, table_of
from fedcanon.errors import FedcanonError
from fedcanon.runs.against import Against

if TYPE_CHECKING:
    from fedcanon.runs import Result


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
    plot: Annotated[Path | None, typer.Option(help="Write a picture of all runs.")] = None,
    against: Annotated[
        Against, typer.Option(help="What the picture's curves are drawn against.")
    ] = (Against.rounds),
) -> None:
    """Train with several algorithms on the same data, start, batches and participants."""
    from fedcanon.cli.progress import progress_bar
    from fedcanon.cli.summary import problem_headline
    from fedcanon.runs.build import assemble, build_problem, check_names
    from fedcanon.runs.compare import variants
    from fedcanon.runs.config import load_config
    from fedcanon.runs.plots import check_writable, plot_histories, save
    from fedcanon.runs.training import fit_as

    config, algorithms = (Path(what[0]), what[1:]) if what[0].endswith(".toml") else (None, what)
    if not algorithms:
        raise FedcanonError("say what to compare, such as fedcanon+ fedavg.")
    runs = variants(load_config(config, set_ or []), algorithms)
    if plot:
        check_writable(plot)
    first = next(iter(runs.values()))
    with console.status("loading data and model …"):
        for label, settings in runs.items():
            with _named(label):
                check_names(settings)
        problem = build_problem(first)
        for label, settings in runs.items():
            with _named(label):
                federation = assemble(settings, problem)
                federation.penalty.check_step(federation.algorithm.prox_step(settings.rounds))
    headline = problem_headline(first, federation)
    console.print(f"[bold]{plain(headline)}[/]")
    results: dict[str, Result] = {}
    for label, settings in runs.items():
        try:
            with progress_bar(label) as bar:
                results[label] = fit_as(settings, assemble(settings, problem), observers=[bar])
        except FedcanonError as error:  # a method that diverges must not cost the others
            console.print(f"[red]{plain(label)}[/]: {plain(error)}")
    if not results:
        raise typer.Exit(1)
    console.print(_table(results))
    if plot:
        histories = {label: result.records for label, result in results.items()}
        save(plot_histories(histories, headline, against), plot)
        console.print(f"picture written to {plain(plot)}")
    if len(results) < len(runs):
        raise typer.Exit(1)


@contextmanager
def _named(label: str) -> Iterator[None]:
    """Put the name of a run in front of its error messages."""
    try:
        yield
    except FedcanonError as error:
        raise FedcanonError(f"{label}: {error}") from None


def _table(results: Mapping[str, Result]) -> Table:
    from fedcanon.report.wording import byte_count, number

    numbers = ("f + h", "‖G‖", "accuracy", "zeros", "prox", "sent", "seconds")
    table = table_of("", numbers=numbers)
    for label, result in results.items():
        last, cost = result.last, result.last.cost
        accuracy = last.test.get("accuracy")
        table.add_row(
            plain(label),
            number(last.objective, ".5g"),
            "" if last.gradient_norm is None else f"{last.gradient_norm:.1e}",
            "" if accuracy is None else f"{accuracy:.4f}",
            f"{last.sparsity:.1%}",
            f"{cost.server_prox + cost.client_prox:,}",
            byte_count(cost.bytes_down + cost.bytes_up),
            f"{cost.seconds:.1f}",
        )
    return table
