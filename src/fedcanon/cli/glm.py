"""``fedcanon glm``: a sparse model over the tables of sites, from CSV files to coefficients."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import Progress

from fedcanon.cli.app import app, console, plain, table_of
from fedcanon.cli.summary import two_columns
from fedcanon.errors import FedcanonError
from fedcanon.penalties import Penalty
from fedcanon.runs.plots import check_writable, save

if TYPE_CHECKING:
    import pandas as pd

    from fedcanon.statistics.study import Study

Names = Annotated[str | None, typer.Option(metavar="A,B,…")]


@app.command()
def glm(
    tables: Annotated[
        list[Path],
        typer.Argument(help="CSV or Parquet files: one for each site, or one with a site column."),
    ],
    label: Annotated[str, typer.Option(help="The column to be explained; times for cox.")],
    site: Annotated[str | None, typer.Option(help="The column that names the site.")] = None,
    family: Annotated[
        str, typer.Option(help="gaussian, binomial, poisson, gamma, negative_binomial, huber, cox.")
    ] = "binomial",
    event: Annotated[str | None, typer.Option(help="For cox: whether the event happened.")] = None,
    columns: Names = None,
    free: Names = None,
    categories: Names = None,
    splines: Annotated[
        str | None, typer.Option(help="Columns with knots, such as age:4.", metavar="A:K,…")
    ] = None,
    penalty: Annotated[str, typer.Option(help="A penalty with a kappa: l1, mcp, scad …")] = "l1",
    kappa: Annotated[
        float | None, typer.Option(help="κ; without it cross-validation chooses.")
    ] = None,
    cv: Annotated[int, typer.Option(min=2, help="Folds inside sites.")] = 5,
    leave_one_site_out: Annotated[
        bool, typer.Option("--leave-one-site-out", help="Leave out one site after the other.")
    ] = False,
    simplest: Annotated[
        bool, typer.Option("--1se/--min", help="The simplest within one error, or the best.")
    ] = True,
    plot: Annotated[Path | None, typer.Option(help="A picture of path and deviance.")] = None,
    forest: Annotated[Path | None, typer.Option(help="A picture of the sites' own.")] = None,
) -> None:
    """Fit a sparse model over the tables of sites, of which only sums are used."""
    from fedcanon.statistics.study import Question, begin_study
    from fedcanon.tables.preparing import Plan

    for picture in filter(None, (plot, forest)):
        check_writable(picture)
    found = _sites(tables, site)
    used = {label, site, event}
    given = _listed(columns) or [c for c in found[0].table.columns if c not in used]
    knots = {name: int(number) for name, _, number in (s.partition(":") for s in _listed(splines))}
    plan = Plan(given, categories=_listed(categories), splines=knots)
    question = Question(label, plan, family, event=event, free=_listed(free))
    with console.status("preparing the tables …"):
        study = begin_study(found, question)
    table = {"name": penalty} | ({"form": "lambda"} if penalty in ("mcp", "scad") else {})
    over = "sites" if leave_one_site_out else "rows"
    chosen = _chosen(study, table, kappa, cv, over, simplest=simplest, plot=plot)
    _show(study, chosen, forest)


def _listed(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _sites(tables: Sequence[Path], site: str | None) -> list[Any]:
    from fedcanon.data.own.tables import read_table
    from fedcanon.tables.site import SiteTable

    read = {path.stem: read_table(path) for path in tables}
    if len(read) < len(tables):
        raise FedcanonError("two tables have the same name, so that their sites would have it too.")
    if site is None:
        return [SiteTable(name, table) for name, table in read.items()]
    found: dict[str, pd.DataFrame] = {}
    for path, table in zip(tables, read.values(), strict=True):
        if site not in table.columns:
            names = ", ".join(map(str, table.columns))
            raise FedcanonError(f"{path} has no column '{site}': it has {names}.")
        found |= {str(name): own.drop(columns=site) for name, own in table.groupby(site)}
    return [SiteTable(name, table) for name, table in sorted(found.items())]


def _chosen(
    study: Study,
    table: dict[str, Any],
    kappa: float | None,
    folds: int,
    over: Any,
    *,
    simplest: bool,
    plot: Path | None,
) -> Penalty:
    """Return the penalty with the given κ, or with the one that cross-validation chooses."""
    from fedcanon.statistics.choosing import automatic_kappas, follow_path, validate
    from fedcanon.statistics.pictures import plot_choice

    def penalty_at(value: float) -> Penalty:
        return study.penalty({**table, "kappa": value})

    if kappa is not None:
        return penalty_at(kappa)
    kappas = automatic_kappas(study, penalty_at)
    count = len(study.sites) if over == "sites" else folds
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("cross-validation", total=(count + 1) * len(kappas))

        def advance() -> None:
            progress.advance(task)

        path = follow_path(study, penalty_at, kappas, advance)
        found = validate(study, table, kappas, folds=folds, over=over, watch=advance)
    place = found.simplest if simplest else found.best
    console.print(
        f"κ = {kappas[place]:.4g}, the {'simplest within one error' if simplest else 'best'} of "
        f"{len(kappas)} by {count} {'sites left out' if over == 'sites' else 'folds'}; deviance of "
        f"rows left out {found.means[place]:.4f} ± {found.errors[place]:.4f}"
    )
    if plot is not None:
        save(plot_choice(path, study.recipe.columns, found), plot)
        console.print(f"picture written to {plain(plot)}")
    return penalty_at(float(kappas[place]))


def _show(study: Study, penalty: Penalty, forest: Path | None) -> None:
    from fedcanon.statistics.heterogeneity import differences
    from fedcanon.statistics.pictures import plot_forest
    from fedcanon.statistics.quality import quality
    from fedcanon.statistics.solving import support

    solution = study.fitted(penalty)
    table = study.summary(solution, penalty)
    kept = table[table["refit"].notna()]
    rows = {
        "sites": f"{len(study.sites)} with {sum(len(s.table) for s in study.sites):,} rows",
        "columns": f"{len(kept) - study.has_intercept} of {len(study.recipe.columns)} selected",
        "rounds": f"{solution.rounds}{'' if solution.converged else ', not converged'}",
    }
    console.print(two_columns(rows))
    numbers = ("penalised", "refit", "error", "95 % from", "to", "p")
    shown = table_of("column", numbers=numbers)
    for name, row in kept.iterrows():
        values = (row[c] for c in ("coefficient", "refit", "error", "low", "high"))
        shown.add_row(plain(name), *(f"{v:.4g}" for v in values), f"{row['p']:.2g}")
    console.print(shown)
    console.print(
        "[dim]Refit, errors and p-values are without penalty and conditional on the selection.[/]"
    )
    sites = table_of("site", numbers=("rows", "deviance", "AUC", "Brier", "slope", "C"))
    for site, client in zip(study.sites, study.problem.clients, strict=True):
        found = quality(client, solution.vector)  # type: ignore[arg-type]
        measures = (found.auc, found.brier, found.slope, found.concordance)
        texts = ("" if value is None else f"{value:.3f}" for value in measures)
        sites.add_row(plain(site.name), f"{found.rows:,}", f"{found.deviance:.4f}", *texts)
    console.print(sites)
    if forest is not None:
        chosen = support(solution.vector, penalty)
        own = differences(study, chosen)
        common = table.loc[own.columns]
        figure = plot_forest(own, common["refit"].to_numpy(), common["error"].to_numpy())
        save(figure, forest)
        console.print(f"picture written to {plain(forest)}")
