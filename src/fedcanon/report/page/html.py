"""Makes a page: text, numbers and the library that draws them, in one HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fedcanon.errors import FedcanonError
from fedcanon.files import explained, write_whole
from fedcanon.report.page import head, provenance, results
from fedcanon.report.page.clients import partitions
from fedcanon.report.page.curves import panels
from fedcanon.report.page.groups import grouped
from fedcanon.report.page.layers import layers
from fedcanon.report.page.oddness import oddness
from fedcanon.report.page.reading import Run, read_run
from fedcanon.runs.folder import RunFolder
from fedcanon.runs.plots import COLOURS

DARK_COLOURS = (
    "#748ffc", "#ff922b", "#51cf66", "#f06595", "#22b8cf", "#ffd43b", "#b197fc", "#adb5bd",
)  # fmt: skip
"""The curves' colours on a dark page, in the order of ``COLOURS``."""


def check_target(path: str | Path) -> None:
    """Refuse a report that could not be written, before the work that it would hold.

    Raises:
        FedcanonError: The path is a folder, or lies in a folder that does not exist.
    """
    path = Path(path)
    if path.is_dir():
        raise FedcanonError(f"cannot write the report {path}: it is a folder.")
    if not path.parent.is_dir():
        raise FedcanonError(f"cannot write the report {path}: there is no folder {path.parent}.")


def write_report(folders: Sequence[RunFolder], path: str | Path) -> None:
    """Write one page about some runs; the file is there whole or not at all.

    Args:
        folders: The runs, finished or not.
        path: The page, an HTML file.

    Raises:
        FedcanonError: A run is damaged, or the page cannot be written.
    """
    text = page(content([read_run(folder) for folder in folders]))
    with explained(f"cannot write the report {path}"):
        write_whole(Path(path), text)


class Sites(Protocol):
    """What a page shows of the clients of a deployment: facts, a table of texts, and events."""

    @property
    def rounds(self) -> dict[str, str]: ...

    @property
    def columns(self) -> Sequence[str]: ...

    @property
    def rows(self) -> Sequence[Sequence[str]]: ...

    @property
    def events(self) -> Sequence[str]: ...


def content(runs: Sequence[Run], sites: Sites | None = None) -> dict[str, Any]:
    """What a page shows of some runs: the HTML above and below its charts, and their numbers.

    With ``sites``, those of the deployment that is the only run.
    """
    groups = grouped(runs)
    title = head.title(groups)
    top = _render(
        "top.html",
        title=title,
        runs=runs,
        progress=head.progress(runs[0]) if len(runs) == 1 else None,
        facts=head.facts(groups),
        results=results.results(groups),
        notes=results.notes(groups),
        colours=len(COLOURS),
        sites=sites,
        oddness=oddness(runs),
    )
    bottom = _render(
        "bottom.html",
        labels=[group.label for group in groups],
        differences=provenance.differences(groups),
        environment=provenance.environment(runs),
        runs=[(run, group.label) for group in groups for run in group.runs],
    )
    charts = {
        "groups": [group.label for group in groups],
        "panels": panels(groups),
        "layers": layers(groups),
        "partitions": partitions(groups),
        "without_model": [run.name for run in runs if run.layers is None],
    }
    return {"title": title, "top": top, "bottom": bottom, "charts": charts}


def page(content: dict[str, Any] | None) -> str:
    """A complete HTML page; without ``content`` it asks its server for content again and again."""
    # Imported here because it takes a fifth of a second, which only pages need.
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

    return _render(
        "page.html",
        content=content,
        plotly=Markup(get_plotlyjs()),
        style=_file("page.css"),
        script=_file("page.js"),
        colours={"light": COLOURS, "dark": DARK_COLOURS},
    )


def _render(template: str, **values: Any) -> str:
    return _templates().get_template(template).render(values)


@cache
def _templates() -> Environment:
    loader = PackageLoader("fedcanon.report.page", "templates")
    return Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _file(name: str) -> Markup:
    """A file of this package; nothing in it is escaped."""
    folder = files("fedcanon.report.page") / "templates"
    return Markup((folder / name).read_text(encoding="utf-8"))
