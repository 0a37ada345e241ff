"""``fedcanon watch``: a page in the browser that follows a run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from fedcanon.cli.app import app, console, plain


@app.command()
def watch(
    name: Annotated[str, typer.Argument(metavar="RUN", help="A run's folder or name.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 0,
) -> None:
    """Show a run in the browser while it goes on; only this machine can see the page."""
    from fedcanon.deployment.overview import read_overview
    from fedcanon.report.page import serving
    from fedcanon.runs.folder import RunFolder

    run = RunFolder.find(name)
    try:
        with serving(run.path, port, read_overview) as address:
            console.print(f"{plain(run.name)} is shown at {address}", soft_wrap=True)
            console.print("Ctrl-C ends the page, not the run.")
            threading.Event().wait()
    except KeyboardInterrupt:
        console.print("ended")


@contextmanager
def live_page(path: Path, *, wanted: bool) -> Iterator[None]:
    """Serve a page about the run in a folder while this process trains it, if ``wanted``."""
    if not wanted:
        yield
        return
    from fedcanon.report.page import serving

    with serving(path) as address:
        console.print(f"the run is shown at {address}")
        yield
