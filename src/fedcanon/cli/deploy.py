"""``fedcanon deploy``: training with real clients on Flower."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tomli_w
import typer

from fedcanon.cli.app import ConfigFile, Settings, app, console, plain, table_of
from fedcanon.errors import FedcanonError

if TYPE_CHECKING:
    from fedcanon.deployment.status import Situation
    from fedcanon.runs.config import Config
    from fedcanon.runs.folder import RunFolder

deploy = typer.Typer(no_args_is_help=True, help="Train with real clients, on Flower.")
app.add_typer(deploy, name="deploy")

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a deployment.")]
Client = Annotated[int, typer.Argument(min=0, help="The client's number.")]


@deploy.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    config: ConfigFile = None,
    set_: Settings = None,
    study: Annotated[
        Path | None, typer.Option(help="TOML file of a study over tables, instead of a training.")
    ] = None,
    clients: Annotated[
        int | None, typer.Option(min=1, help="How many clients; as configured by default.")
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(help="A name or address of the server; 127.0.0.1 by default."),
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65000, help="The server's port.")] = 9100,
) -> None:
    """Write a Flower app: configuration, data function, certificates, keys and commands."""
    from fedcanon.cli.progress import stage
    from fedcanon.runs.config import changed, load_config
    from fedcanon.runs.private_settings import with_noise

    try:
        from fedcanon.deployment.app.project import STUDY, write_app
        from fedcanon.deployment.secure.configured import new_identities
    except ModuleNotFoundError:
        raise FedcanonError('this needs packages: pip install "fedcanon[flower]".') from None
    hosts = host or ["127.0.0.1", "localhost"]
    if study is not None:
        if config is not None or set_ or clients is None:
            raise FedcanonError("a study takes --clients, and neither a configuration nor --set.")
        write_app(folder, _study(study), clients, hosts, port, STUDY)
        advice = "Every site names its table and its guards in its site.toml."
    else:
        settings = load_config(config, set_ or [])
        if clients is not None:
            settings = changed(settings, {"clients.count": clients})
        with stage("loading data and model …"):
            settings = _without_data(settings)
        clients = settings.clients.count
        identities = new_identities(settings)
        if identities:
            public = [identity.public for identity in identities]
            settings = changed(settings, {"deployment.identities": public})
        content = tomli_w.dumps(with_noise(settings).model_dump(exclude_none=True))
        write_app(folder, content, clients, hosts, port, identities=identities)
        advice = (
            f"Your own data are one function, in app/data.py. 'fedcanon deploy try {plain(folder)}'"
            " is a dry run."
        )
    console.print(
        f"[bold]{plain(folder)}[/] is ready for {clients} clients: its README.md has the commands."
        f"\n{advice}",
        soft_wrap=True,
    )


def _study(path: Path) -> str:
    """The settings of a study, checked."""
    from fedcanon.runs.config import read_toml, validated
    from fedcanon.statistics.settings import StudySettings

    settings = validated(StudySettings, read_toml(path))
    if not settings.columns:
        raise FedcanonError(f"name the columns in {path}: a server does not see the tables.")
    settings.question(settings.columns)
    return tomli_w.dumps(settings.model_dump(exclude_none=True))


def _without_data(config: Config) -> Config:
    """The configuration with the shape of the inputs and the number of classes.

    A server without data cannot find them out itself. The dataset is loaded only if one of them is
    missing.
    """
    from fedcanon.runs.build import build_problem, check_names
    from fedcanon.runs.config import changed

    told = config.deployment
    check_names(config)
    if told.shape and told.classes is not None:
        return config
    data = build_problem(config).data
    assert data is not None
    return changed(
        config,
        {
            "deployment.shape": told.shape or list(data.shape),
            "deployment.classes": data.classes if told.classes is None else told.classes,
        },
    )


@deploy.command()
def status(folder: Folder) -> None:
    """Show the rounds that are done, the clients, and what was odd."""
    from fedcanon.cli.summary import two_columns
    from fedcanon.deployment.overview import overview
    from fedcanon.report.wording import number

    run, told = _run(folder)
    records, seen = run.records(), overview(told)
    measures = records[-1].test if records else {}
    rows = {
        "run": f"{run.status}, {told.round} of {run.config.rounds} rounds",
        "objective f + h": number(records[-1].objective, ".6g") if records else "",
        **{name.replace("_", " "): f"{value:.4g}" for name, value in measures.items()},
        **seen.rounds,
    }
    console.print(two_columns(rows))
    table = table_of(*seen.columns[:2], numbers=seen.columns[2:])
    for row in seen.rows:
        table.add_row(*map(plain, row))
    console.print(table)
    for event in seen.events:
        console.print(f"[dim]{plain(event)}[/]", soft_wrap=True)


@deploy.command()
def pause(folder: Folder) -> None:
    """Let the run wait after its current round."""
    from fedcanon.deployment.status import PAUSE, give_order

    give_order(_run(folder)[0].path, PAUSE)
    console.print("the run pauses after its current round: go on with 'fedcanon deploy resume'.")


@deploy.command()
def resume(folder: Folder) -> None:
    """Let a paused run go on."""
    from fedcanon.deployment.status import PAUSE, withdraw_order

    withdraw_order(_run(folder)[0].path, PAUSE)
    console.print("the run goes on.")


@deploy.command()
def end(folder: Folder) -> None:
    """End the run after its current round; its model is kept."""
    from fedcanon.deployment.status import END, give_order

    give_order(_run(folder)[0].path, END)
    console.print("the run ends after its current round.")


@deploy.command()
def exclude(folder: Folder, client: Client) -> None:
    """Let the run go on without a client from its next round on."""
    from fedcanon.deployment.status import ADMIT, EXCLUDE, give_order, withdraw_order

    run, told = _run(folder)
    if client not in told.membership.members:
        members = ", ".join(map(str, told.membership.members))
        raise FedcanonError(f"there is no client {client} in this run: its clients are {members}.")
    withdraw_order(run.path, ADMIT, client)
    give_order(run.path, EXCLUDE, client)
    console.print(f"client {client} is excluded before the next round.")


@deploy.command()
def admit(folder: Folder, client: Client) -> None:
    """Let a client take part again that was excluded."""
    from fedcanon.deployment.status import ADMIT, EXCLUDE, give_order, withdraw_order

    run, told = _run(folder)
    if client not in told.membership.gone:
        raise FedcanonError(f"client {client} was not excluded from this run.")
    withdraw_order(run.path, EXCLUDE, client)
    give_order(run.path, ADMIT, client)
    console.print(f"client {client} takes part again from the next round on, if it is there.")


def _run(folder: Path) -> tuple[RunFolder, Situation]:
    from fedcanon.deployment.status import read_status
    from fedcanon.runs.folder import RunFolder

    if (folder / "app" / "study.toml").is_file():
        raise FedcanonError(f"{folder} is a study, which has no rounds: see the log of its run.")
    if not (folder / "app" / "run.toml").is_file():
        raise FedcanonError(f"{folder} is no deployment: make one with 'fedcanon deploy init'.")
    run = RunFolder(folder / "run")
    told = read_status(run.path)
    if told is None:
        raise FedcanonError(
            f"no round has been done yet in {folder}: its README.md has the commands."
        )
    return run, told
