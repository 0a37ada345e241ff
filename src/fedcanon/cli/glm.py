"""``fedcanon glm``: a sparse model over the tables of sites, from CSV files to coefficients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcanon.cli.app import app, console, plain, table_of
from fedcanon.errors import FedcanonError

if TYPE_CHECKING:
    import pandas as pd

    from fedcanon.statistics.findings import Findings, Watch


@app.command()
def glm(
    tables: Annotated[
        list[Path],
        typer.Argument(help="CSV or Parquet files: one for each site, or one with a site column."),
    ],
    label: Annotated[
        str | None, typer.Option(help="The column to be explained; times for cox.")
    ] = None,
    site: Annotated[str | None, typer.Option(help="The column that names the site.")] = None,
    family: Annotated[
        str | None,
        typer.Option(
            help="binomial (default), gaussian, poisson, gamma, negative_binomial, huber, "
            "multinomial, cox."
        ),
    ] = None,
    event: Annotated[str | None, typer.Option(help="For cox: whether the event happened.")] = None,
    columns: Annotated[
        str | None, typer.Option(help="The columns to use; all others by default.", metavar="A,B,…")
    ] = None,
    free: Annotated[
        str | None, typer.Option(help="Columns without penalty.", metavar="A,B,…")
    ] = None,
    categories: Annotated[
        str | None, typer.Option(help="Columns of numbers that are categories.", metavar="A,B,…")
    ] = None,
    logs: Annotated[
        str | None, typer.Option(help="Columns to take the logarithm of.", metavar="A,B,…")
    ] = None,
    splines: Annotated[
        str | None, typer.Option(help="Columns with knots, such as age:4.", metavar="A:K,…")
    ] = None,
    missing: Annotated[
        str | None,
        typer.Option(help="mean, median, most_frequent or a value.", metavar="A:HOW,…"),
    ] = None,
    indicators: Annotated[
        str | None, typer.Option(help="Columns with one for what is missing.", metavar="A,B,…")
    ] = None,
    weights: Annotated[str | None, typer.Option(help="The column of weights.")] = None,
    balanced: Annotated[
        bool | None, typer.Option("--balanced", help="The same weight for all classes.")
    ] = None,
    offset: Annotated[
        str | None, typer.Option(help="The column of offsets, such as log exposure.")
    ] = None,
    penalty: Annotated[
        str | None, typer.Option(help="l1 (default), mcp, scad, elastic_net, ridge, group_lasso …")
    ] = None,
    kappa: Annotated[float | None, typer.Option(help="κ; without it, it is chosen.")] = None,
    choose: Annotated[
        str | None, typer.Option(help="1se (default) or min of cross-validation, bic, ebic.")
    ] = None,
    cv: Annotated[int | None, typer.Option(min=2, help="Folds inside sites; 5.")] = None,
    leave_one_site_out: Annotated[
        bool | None, typer.Option("--leave-one-site-out", help="Leave out whole sites instead.")
    ] = None,
    stability: Annotated[
        int | None, typer.Option(help="Subsamples of stability selection.")
    ] = None,
    study: Annotated[
        Path | None, typer.Option(help="A TOML file with these settings; options change it.")
    ] = None,
    report: Annotated[Path, typer.Option("--report", "-o", help="The page.")] = Path("report.html"),
    table: Annotated[Path | None, typer.Option(help="The coefficients as CSV.")] = None,
) -> None:
    """Fit a sparse model over the tables of sites, of which only sums are used."""
    given = {
        "label": label,
        "family": family,
        "event": event,
        "columns": _listed(columns),
        "free": _listed(free),
        "categories": _listed(categories),
        "logs": _listed(logs),
        "splines": _paired("splines", splines),
        "missing": _paired("missing", missing),
        "indicators": _listed(indicators),
        "weights": weights,
        "balanced": balanced,
        "offset": offset,
        "penalty": _penalty(penalty),
        "kappa": kappa,
        "choose": choose,
        "folds": cv,
        "leave_one_site_out": leave_one_site_out,
        "stability": stability,
    }
    from fedcanon.report.page.html import check_target
    from fedcanon.runs.config import read_toml, validated
    from fedcanon.statistics.findings import investigate
    from fedcanon.statistics.report import write_coefficients, write_report
    from fedcanon.statistics.settings import StudySettings
    from fedcanon.tables.sites import LocalSites

    for target in filter(None, (report, table)):
        check_target(target)
    started = read_toml(study) if study else {}
    settings = validated(StudySettings, started | {k: v for k, v in given.items() if v is not None})
    sites = _sites(tables, site)
    with _progress() as watch:
        found = investigate(
            LocalSites(sites), settings, [str(c) for c in sites[0].table.columns], watch
        )
    _show(found)
    write_report(found, report)
    console.print(f"report written to {plain(report)}")
    if table is not None:
        write_coefficients(found, table)
        console.print(f"coefficients written to {plain(table)}")


def _listed(text: str | None) -> list[str] | None:
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]


def _paired(option: str, text: str | None) -> dict[str, Any] | None:
    """Read ``age:4,weight:5``."""
    from fedcanon.runs.config import parse_value

    if text is None:
        return None
    found = {}
    for word in _listed(text) or ():
        name, colon, value = word.rpartition(":")
        if not (colon and name and value):
            raise FedcanonError(f"--{option} takes column:value, such as age:4, not '{word}'.")
        found[name] = parse_value(value)
    return found


def _penalty(name: str | None) -> dict[str, Any] | None:
    if name is None:
        return None
    return {"name": name} | ({"groups": "variables"} if "group" in name else {})


def _sites(tables: Sequence[Path], site: str | None) -> list[Any]:
    """Read the sites: a table for each, or the parts of one."""
    from fedcanon.data.own.tables import read_table
    from fedcanon.statistics.site import StudySite
    from fedcanon.tables.recipe import texts
    from fedcanon.tables.site import NO_GUARDS

    read = [(_name(path), read_table(path)) for path in tables]
    if site is None and len(dict(read)) < len(read):
        raise FedcanonError("two tables have the same name, so that their sites would have it too.")
    if site is None:
        return [StudySite(name, table, NO_GUARDS) for name, table in read]
    found: dict[str, list[pd.DataFrame]] = {}
    for path, (_, table) in zip(tables, read, strict=True):
        if site not in table.columns:
            names = ", ".join(map(str, table.columns))
            raise FedcanonError(f"{path} has no column '{site}': it has {names}.")
        if missing := int(table[site].isna().sum()):
            raise FedcanonError(f"{missing} rows of {path} have no '{site}': leave them out.")
        for name, own in table.groupby(texts(table[site])):
            found.setdefault(str(name), []).append(own.drop(columns=site))
    import pandas as pd

    return [
        StudySite(name, pd.concat(parts, ignore_index=True), NO_GUARDS)
        for name, parts in sorted(found.items())
    ]


def _name(path: Path) -> str:
    """The name of a site, from that of its file: without .csv, .csv.gz or .parquet."""
    return path.with_suffix("").stem if path.suffixes[-2:-1] == [".csv"] else path.stem


@contextmanager
def _progress() -> Iterator[Watch]:
    """Show which part of the study is being done, and how much of it if it has steps."""
    from fedcanon.cli.progress import Tell, meter, stage

    tell: Tell | None = None
    with ExitStack() as shown:

        def watch(what: str, done: int, of: int) -> None:
            nonlocal tell
            if not done:
                shown.close()  # the part before
                tell = shown.enter_context(meter(what, of) if of > 1 else stage(f"{what} …"))
            elif tell is not None:
                tell(done, "")

        yield watch


def _show(found: Findings) -> None:
    """Print the model and how good it is."""
    from fedcanon.cli.summary import two_columns
    from fedcanon.statistics.report import coefficients, facts, qualities

    console.print(two_columns(facts(found)))
    level = f"{found.settings.level:.0%}".replace("%", " %")
    shown = table_of("column", numbers=("penalised", "refit", "error", f"{level} from", "to", "p"))
    keys = ("coefficient", "refit", "error", "low", "high", "p")
    for row in coefficients(found):
        shown.add_row(plain(row["name"]), *(row[key] for key in keys))
    console.print(shown)
    if found.table["refit"].notna().any():
        console.print(
            "[dim]Refit, errors and p-values are without penalty and conditional on the selection."
            "[/]",
            soft_wrap=True,
        )
    rows = qualities(found)
    sites = table_of("site", numbers=list(rows[0])[1:])
    for row in rows:
        sites.add_row(*map(plain, row.values()))
    console.print(sites)
    for note in found.notes:
        console.print(f"[yellow]{plain(note)}[/]", soft_wrap=True)
