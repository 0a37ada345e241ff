"""``fedcanon site``: what a client runs on its own machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcanon.cli.app import app
from fedcanon.errors import FedcanonError

site = typer.Typer(no_args_is_help=True, help="Take part in a training, as one of its clients.")
app.add_typer(site, name="site")

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="The folder of a site, with its site.toml.")
]

_PACKAGES = 'this needs packages: pip install "fedcanon[flower]".'


@site.callback()
def _group() -> None:
    """Take part in a training, as one of its clients."""


@site.command()
def start(folder: Folder) -> None:
    """Connect to the server and answer its messages, until Ctrl-C or SIGTERM."""
    try:
        import flwr  # noqa: F401

        from fedcanon.deployment.site import read_site, run_site
    except ModuleNotFoundError:
        raise FedcanonError(_PACKAGES) from None
    run_site(read_site(folder))


@site.command()
def identity(folder: Folder) -> None:
    """Print the public identity of a site for secure sums; make it first if there is none."""
    try:
        from fedcanon.deployment.secure.identity import Identity
        from fedcanon.deployment.site import read_site
    except ModuleNotFoundError:
        raise FedcanonError(_PACKAGES) from None
    print(Identity.made_at(read_site(folder).identity).public)
