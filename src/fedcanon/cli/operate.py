"""``fedcanon deploy start``, ``run``, ``key`` and ``try``: the server of a deployment."""

from __future__ import annotations

import shutil
import signal
import subprocess
import threading
from datetime import datetime
from pathlib import Path
from tempfile import mkdtemp
from types import ModuleType
from typing import Annotated

import typer

from fedcanon.cli.app import console, plain, table_of
from fedcanon.cli.deploy import Folder, deploy
from fedcanon.errors import FedcanonError


@deploy.command()
def start(folder: Folder) -> None:
    """Start the server and keep it going: SuperLink, keys, and nginx with TLS; Ctrl-C ends it."""
    server = _operate("server")
    place = _operate("folder").DeploymentFolder.at(folder)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with server.running(place, _report) as started:
        _report("ready: sites can come in. Ctrl-C ends the server, not the run's progress")
        started.keep(stop)


@deploy.command()
def run(folder: Folder) -> None:
    """Begin the run, or continue it after the last completed round, and show its log."""
    place = _operate("folder").DeploymentFolder.at(folder)
    if not _operate("server").is_running(place):
        raise FedcanonError(f"the server does not run: 'fedcanon deploy start {folder}' starts it.")
    command = ["flwr", "run", str(place.path), "deployment", "--stream"]
    done = subprocess.run(command, env=place.environment)
    if done.returncode or not place.is_finished:
        what, then = ("study", "begins it anew") if place.is_study else ("run", "continues it")
        raise FedcanonError(
            f"the {what} in {folder} is not finished: see the log above and {place.logs}; the same "
            f"command {then}."
        )


@deploy.command()
def key(
    folder: Folder,
    client: Annotated[int, typer.Argument(min=0, help="The client's number.")],
    file: Annotated[Path, typer.Argument(metavar="KEY.PUB", help="Its new public key.")],
) -> None:
    """Give a site another key, or a new site its first; the old key is refused from now on."""
    place = _operate("folder").DeploymentFolder.at(folder)
    running = _operate("server").is_running(place)
    _operate("keys").replace_key(place, client, file, running=running)
    when = "now" if running else "when the server is started"
    console.print(f"client {client} is known by {plain(file)}, {when}.", soft_wrap=True)


@deploy.command("try")
def try_(folder: Folder) -> None:
    """Try it all on this machine, with made-up data; a verdict for every check."""
    place = _operate("folder").DeploymentFolder.at(folder)
    if place.is_study:
        raise FedcanonError(
            "a study cannot be tried with made-up data: try it with 'fedcanon glm --study' on some "
            "tables, and start server and sites on this machine."
        )
    scratch = Path(mkdtemp(prefix="fedcanon-try-"))
    with console.status("copying the deployment …") as status:

        def show(what: str) -> None:
            status.update(f"{plain(what)} …")

        verdicts = _operate("trial").Trial(place, scratch / "deployment", show).verdicts()
    table = table_of("", "check", "")
    for verdict in verdicts:
        mark = "[green]passed[/]" if verdict.passed else "[bold red]failed[/]"
        table.add_row(mark, plain(verdict.check), plain(verdict.found))
    console.print(table)
    if all(verdict.passed for verdict in verdicts):
        shutil.rmtree(scratch)
        return
    console.print(f"The logs are in {plain(scratch)}.", soft_wrap=True)
    raise typer.Exit(1)


def _report(event: str) -> None:
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    console.print(f"[dim]{now}[/]  {plain(event)}", soft_wrap=True)


def _operate(name: str) -> ModuleType:
    """Return a module of ``fedcanon.deployment.operate``, which needs packages of the extra."""
    from importlib import import_module

    try:
        return import_module(f"fedcanon.deployment.operate.{name}")
    except ModuleNotFoundError:
        raise FedcanonError('this needs packages: pip install "fedcanon[flower]".') from None
