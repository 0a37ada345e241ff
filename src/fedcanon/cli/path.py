"""``fedcanon path``: a model for each κ, each started from the one before; one is selected."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from fedcanon.cli.app import ConfigFile, Settings, app, console, plain, table_of
from fedcanon.errors import RunStoppedError

if TYPE_CHECKING:
    from fedcanon.search.path import FollowedPath

LINEAR = ("linear", "logistic")
"""Models whose coefficients are drawn."""


@app.command()
def path(
    config: ConfigFile = None,
    kappas: Annotated[
        str | None,
        typer.Option(
            help="The values of κ, such as 1e-1:1e-4:20; by default they start where all weights "
            "are zero.",
            metavar="FIRST:LAST:COUNT",
            show_default=False,
        ),
    ] = None,
    select: Annotated[
        str,
        typer.Option(help="validation, bic or sparsity:0.9.", metavar="CRITERION"),
    ] = "validation",
    plot: Annotated[
        Path | None, typer.Option(help="The picture's file; path.png in the folder by default.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="Where the path is kept; the same command finds it in runs/ again."),
    ] = None,
    set_: Settings = None,
) -> None:
    """Train a model for each κ, each started from the one before, and select one."""
    from fedcanon.cli.progress import progress_bar
    from fedcanon.runs.config import load_config
    from fedcanon.runs.plots import check_writable, save
    from fedcanon.search.kappas import parse_kappas
    from fedcanon.search.path import PathSearch, follow
    from fedcanon.search.path_picture import plot_path
    from fedcanon.search.search_folder import default_path
    from fedcanon.search.selection import parse_selection

    settings = load_config(config, set_ or [])
    values = None if kappas is None else parse_kappas(kappas)
    search = PathSearch(settings, parse_selection(select), values)
    where = folder or default_path("path", settings, search.identity)
    if plot:
        check_writable(plot)
    try:
        found = follow(search, where, lambda k, count: progress_bar(f"κ {k + 1}/{count}"))
    except KeyboardInterrupt:
        raise RunStoppedError(
            f"stopped: the same command goes on with what is missing in {where}."
        ) from None
    penalty = settings.penalty["name"]
    title = f"{penalty} path · {settings.data.name} · {settings.model.name}"
    console.print(f"[bold]{plain(title)}[/]")
    label = search.selection.label
    tolerance = max(settings.stop.gradient, settings.stop.objective) > 0
    console.print(_table(found, label, mark=tolerance))
    coefficients = found.coefficients() if settings.model.name in LINEAR else None
    picture = plot or where / "path.png"
    taken = f"κ = {found.points[found.chosen].kappa:.4g} has the smallest {label}"
    figure = plot_path(found.points, found.chosen, label, f"{title} · {taken}", coefficients)
    save(figure, picture)
    console.print(taken)
    if found.unfinished:
        models = f"{len(found.unfinished)} of {len(found.points)} models"
        checked = f"{models}, marked +, had not converged when their rounds ended: use more rounds"
        unchecked = f"nothing says whether {models} converged: set stop.gradient, such as 1e-4"
        console.print(f"[yellow]note[/] {checked if tolerance else unchecked}")
    if found.chosen == len(found.points) - 1:
        console.print("[yellow]note[/] it is the last κ: a longer path may have a better one")
    kept = f"model.safetensors, selected.toml and path.csv kept in {where}, picture in {picture}"
    console.print(plain(kept), soft_wrap=True)


def _table(found: FollowedPath, label: str, *, mark: bool) -> Table:
    """A row for each κ; ``mark`` puts a + behind rounds that ended before the model converged."""
    columns = ["κ", "rounds", "loss", label, "accuracy", "non-zeros", "zeros", ""]
    table = table_of(numbers=list(dict.fromkeys(columns)))
    for number, point in enumerate(found.points):
        accuracy = point.record.test.get("accuracy")
        criterion = [] if label == "loss" else [f"{point.criterion:.5g}"]
        table.add_row(
            f"{point.kappa:.3g}",
            f"{point.record.round:,}" + ("+" if mark and number in found.unfinished else ""),
            f"{point.record.loss:.5g}",
            *criterion,
            "" if accuracy is None else f"{accuracy:.4f}",
            f"{point.nonzeros:,}",
            f"{point.record.sparsity:.1%}",
            "[green]←[/]" if number == found.chosen else "",
        )
    return table
