"""What all commands share: the application, the console, options, tables."""

from __future__ import annotations

import gc
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedcanon.errors import FedcanonError, RunStoppedError
from fedcanon.text import printable

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
console = Console(highlight=False)

INTERRUPTED = 128 + signal.SIGINT
"""The exit code of a program that Ctrl-C has ended."""

ConfigFile = Annotated[
    Path | None, typer.Argument(help="TOML file; the default run without one.", show_default=False)
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a setting: algorithm.beta=0.05.", metavar="KEY=VALUE"),
]
DataSettings = Annotated[
    list[str] | None,
    typer.Option("--set", help="An option of the dataset.", metavar="data.KEY=VALUE"),
]
Trust = Annotated[
    bool,
    typer.Option("--trust", help="Import code that the run names, whoever made the run."),
]


def plain(text: object) -> str:
    """Text for the console: brackets are no markup, control characters are written as codes."""
    return escape(printable(text, lines=True))


def table_of(*texts: str, numbers: Sequence[str] = ()) -> Table:
    """An empty table with columns of text and, behind them, columns of numbers."""
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for name in texts:
        table.add_column(plain(name), overflow="fold")
    for name in numbers:
        table.add_column(plain(name), justify="right", no_wrap=True)
    return table


def dataset_options(settings: Sequence[str], otherwise: str) -> dict[str, Any]:
    """Return the options of a dataset that ``--set data.KEY=VALUE`` gives.

    Args:
        settings: Keys and values.
        otherwise: How this command is told the rest, for the error message.

    Raises:
        FedcanonError: A setting is of another kind.
    """
    from fedcanon.runs.config import DataSection, parse_value

    options = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        option = key.removeprefix("data.")
        if not equals or option == key or option in ("", *DataSection.model_fields):
            raise FedcanonError(
                f"--set takes an option of the dataset here, such as data.test=new.csv, not "
                f"'{setting}'; {otherwise}."
            )
        options[option] = parse_value(text)
    return options


def _show_version(wanted: bool) -> None:
    if wanted:
        from fedcanon.version import __version__

        console.print(f"fedcanon {__version__}")
        raise typer.Exit


@app.callback()
def common(
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Composite federated learning: minimise f + h over clients that keep their data."""


def main() -> None:
    """Run the command line.

    A user's mistake ends with one message and exit code 2, Ctrl-C with a sentence and exit code
    130, whether a run could be kept or not.
    """
    warnings.formatwarning = lambda message, *_: f"warning: {message}\n"  # without a place in code
    # One thread gives the same bits on every machine and does not stall when cores are busy.
    # PyTorch reads this when a command imports it.
    os.environ["OMP_NUM_THREADS"] = "1"
    # Imports make many objects that stay. To look through them ever again takes half a second.
    gc.set_threshold(10_000)
    try:
        app()
    except RunStoppedError as stop:
        Console(stderr=True, highlight=False).print(plain(stop), soft_wrap=True)
        sys.exit(INTERRUPTED)
    except SystemExit as end:
        if end.code == INTERRUPTED:  # what Typer makes of Ctrl-C, without a word
            Console(stderr=True, highlight=False).print("stopped before the end.")
        raise
    except FedcanonError as error:
        message = f"[bold red]error:[/] {plain(error)}"
        Console(stderr=True, highlight=False).print(message, soft_wrap=True)
        sys.exit(2)
