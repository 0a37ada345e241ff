"""``fedcanon deploy``: runs over real clients, on Flower."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import tomli_w
import typer
from rich.table import Table

from fedcanon.cli.app import Settings, app, console, plain
from fedcanon.cli.summary import two_columns
from fedcanon.deployment.status import ask_to_leave, read_status
from fedcanon.errors import FedcanonError
from fedcanon.report.wording import byte_count
from fedcanon.runs.build import build, check_names, resolved
from fedcanon.runs.config import Config, changed, load_config
from fedcanon.runs.folder import RunFolder
from fedcanon.runs.steps import AUTO

deploy = typer.Typer(no_args_is_help=True, help="Train over real clients, on Flower.")
app.add_typer(deploy, name="deploy")

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a deployment.")]


@deploy.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    config: Annotated[
        Path | None, typer.Option(help="TOML file; the default run without one.")
    ] = None,
    set_: Settings = None,
    clients: Annotated[
        int | None, typer.Option(min=1, help="How many clients; as configured by default.")
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(help="A name or address of the server; 127.0.0.1 by default."),
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65000, help="The server's port.")] = 9100,
) -> None:
    """Write a ready Flower app: configuration, data function, certificates, keys, commands."""
    try:
        from fedcanon.deployment.app import write_app
    except ModuleNotFoundError:
        raise FedcanonError('this needs packages: pip install "fedcanon[flower]".') from None
    settings = load_config(config, set_ or [])
    if clients is not None:
        settings = changed(settings, {"clients.count": clients})
    with console.status("loading data and model …"):
        settings = _without_data(settings)
    hosts = host or ["127.0.0.1", "localhost"]
    content, count = tomli_w.dumps(settings.model_dump(exclude_none=True)), settings.clients.count
    write_app(folder, content, count, hosts, port)
    console.print(
        f"[bold]{plain(folder)}[/] is ready for {count} clients: its README.md has the "
        "commands.\nYour own data are one function, in app/data.py.",
        highlight=False,
        soft_wrap=True,
    )


def _without_data(config: Config) -> Config:
    """The configuration with all that its dataset tells: steps, and the shape and classes.

    A dataset is loaded only if something is left to tell.
    """
    automatic, told = AUTO in config.algorithm.values(), config.deployment
    if not automatic and told.shape and told.classes is not None:
        check_names(config)
        return config
    federation = build(config)
    data = federation.problem.data
    assert data is not None
    return changed(
        resolved(config, federation) if automatic else config,
        {
            "deployment.shape": told.shape or list(data.shape),
            "deployment.classes": data.classes if told.classes is None else told.classes,
        },
    )


@deploy.command()
def status(folder: Folder) -> None:
    """Show rounds, clients and their last acknowledged updates."""
    run, told = _run(folder)
    membership, present = told["membership"], told["present"]
    records = run.records()
    rounds, traffic = told["since_start"], told["traffic"]
    measures = records[-1].test if records else {}
    rows = {
        "run": f"{run.status}, {told['round']} of {run.config.rounds} rounds",
        "generation": f"{membership['generation']}, states with the {told['keeper']}",
        "objective f + h": f"{records[-1].objective:.6g}" if records else "",
        **{name.replace("_", " "): f"{value:.4g}" for name, value in measures.items()},
    }
    if rounds["count"]:
        mean = rounds["seconds"] / rounds["count"]
        own = rounds["client_seconds"] / rounds["count"]
        rows["a round"] = f"{mean:.1f} s, of which the slowest client's own work {own:.1f} s"
        down, up = (traffic[k] // rounds["count"] for k in ("bytes_down", "bytes_up"))
        rows["bytes a round"] = f"{byte_count(down)} down, {byte_count(up)} up"
    console.print(two_columns(rows), highlight=False)
    console.print(_clients(membership, present), highlight=False)
    for event in told["events"][-5:]:
        console.print(f"[dim]{plain(event)}[/]", highlight=False, soft_wrap=True)


@deploy.command()
def leave(
    folder: Folder, client: Annotated[int, typer.Argument(min=0, help="The client's number.")]
) -> None:
    """Let a client leave for good; the run goes on without it from its next round on."""
    run, told = _run(folder)
    if str(client) not in told["membership"]["members"]:
        members = ", ".join(told["membership"]["members"])
        raise FedcanonError(f"client {client} does not take part: those that do are {members}.")
    ask_to_leave(run.path, client)
    console.print(f"client {client} will have left in the next round.", highlight=False)


def _run(folder: Path) -> tuple[RunFolder, dict[str, Any]]:
    if not (folder / "app" / "run.toml").is_file():
        raise FedcanonError(f"{folder} is no deployment: make one with 'fedcanon deploy init'.")
    run = RunFolder(folder / "run")
    told = read_status(run.path)
    if told is None:
        raise FedcanonError(
            f"no round has been done yet in {folder}: its README.md has the commands."
        )
    return run, told


def _clients(membership: dict[str, Any], present: dict[str, Any]) -> Table:
    table = Table(box=None, padding=(0, 2), header_style="dim")
    for column in ("client", "", "samples", "held out", "last round", "last update", "restarts"):
        table.add_column(column, justify="left" if column in ("client", "") else "right")
    for client in sorted([*membership["members"], *membership["gone"]], key=int):
        there = present.get(client, {})
        table.add_row(
            client,
            membership["gone"].get(client) or ("[green]there[/]" if there else "[yellow]away[/]"),
            *(f"{there[key]:,}" if there else "" for key in ("samples", "held_out")),
            str(membership["last_round"].get(client, "")),
            membership["acks"].get(client, "")[:8],
            str(membership["restarts_caused"].get(client, 0)),
        )
    return table
