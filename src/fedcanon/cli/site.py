"""``fedcanon site``: what a client runs on its own machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcanon.cli.app import app
from fedcanon.errors import FedcanonError

site = typer.Typer(no_args_is_help=True, help="Take part in a training, as one of its clients.")
app.add_typer(site, name="site")


@site.callback()
def _group() -> None:
    """Take part in a training, as one of its clients."""


@site.command()
def start(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder of a site, with its site.toml.")
    ],
) -> None:
    """Connect to the server and answer its messages, until Ctrl-C or SIGTERM."""
    try:
        import flwr  # noqa: F401

        from fedcanon.deployment.site import read_site, run_site
    except ModuleNotFoundError:
        raise FedcanonError('this needs packages: pip install "fedcanon[flower]".') from None
    run_site(read_site(folder))
