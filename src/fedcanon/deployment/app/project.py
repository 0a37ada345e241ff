"""Writes the folder of a deployment."""

from __future__ import annotations

import getpass
import re
import shlex
import sys
from collections.abc import Sequence
from importlib.resources import files
from ipaddress import ip_address
from pathlib import Path

import tomli_w
from jinja2 import Environment, StrictUndefined

from fedcanon.deployment.app.credentials import write_certificates
from fedcanon.deployment.app.sites import DATA_NODE, TABLE_NODE, write_site
from fedcanon.deployment.secure.identity import Identity
from fedcanon.errors import FedcanonError
from fedcanon.files import explained, new_folder
from fedcanon.version import __version__

FILES = (
    "Containerfile",
    "pyproject.toml",
    "flower/config.toml",
    "app/__init__.py",
    "server/nginx.conf",
    "server/fedcanon-server.service",
)

RUN, STUDY = "run.toml", "study.toml"
"""What a deployment does, in its folder of modules: it trains a model, or it does a study."""

RESULT, REPORT = "result.json", "report.html"
"""What a run and a study have written when they are finished, in the folder of the run."""

NODES = {RUN: DATA_NODE, STUDY: TABLE_NODE}

OWN_FILES = {
    RUN: ("README.md", "app/server.py", "app/client.py", "app/data.py"),
    STUDY: ("README.md", "app/server.py", "app/client.py"),
}


def write_app(
    folder: Path,
    config: str,
    clients: int,
    hosts: Sequence[str],
    port: int,
    name: str = RUN,
    identities: Sequence[Identity] = (),
) -> None:
    """Write the folder of a deployment; if that fails, no part of the folder remains.

    Only its owner may read it: it holds the keys of the server and, until the sites have keys of
    their own, of the sites.

    Args:
        folder: The folder, which must not exist.
        config: The content of the configuration file.
        clients: The number of clients.
        hosts: The names and addresses of the server; clients connect to the first.
        port: The port of the server. The SuperLink has the next one, on 127.0.0.1.
        name: The name of the configuration file: ``RUN`` or ``STUDY``.
        identities: By which sites know each other in secure sums, to try them; none if every site
            makes its own.

    Raises:
        FedcanonError: The folder exists, has a space in its path, or cannot be written; a host is
            neither a name nor an address.
    """
    if folder.exists():
        raise FedcanonError(f"{folder} exists already: choose another folder.")
    folder = folder.absolute()
    if any(character.isspace() for character in str(folder)):
        raise FedcanonError(f"the path {folder} has a space: Flower needs a path without spaces.")
    for host in hosts:
        _check_host(host)
    with explained(f"cannot write {folder}"), new_folder(folder) as unfinished:
        address = f"[{hosts[0]}]:{port}" if ":" in hosts[0] else f"{hosts[0]}:{port}"
        values: dict[str, object] = {"folder": str(folder), "clients": clients, "port": port}
        values |= {"address": address, "listen": _listens_on(hosts)}
        values |= {"name": _package_name(folder.name), "version": __version__}
        command = str(Path(sys.executable).with_name("fedcanon"))
        values |= {"user": _user(), "command": command, "secure": bool(identities)}
        write_certificates(unfinished / "server", hosts)
        for file in FILES:
            _write(unfinished / file, file, values)
        for file in OWN_FILES[name]:
            _write(unfinished / file, f"{name.partition('.')[0]}/{file}", values)
        (unfinished / "app" / name).write_text(config, encoding="utf-8")
        for client in range(clients):
            site, authority = unfinished / "sites" / str(client), unfinished / "server" / "ca.pem"
            own = identities[client] if identities else None
            settings = (address, port + 2 + client, authority, NODES[name], own)
            write_site(site, folder, client, *settings)
    folder.chmod(0o700)


def _check_host(host: str) -> None:
    try:
        ip_address(host)
    except ValueError:
        if not re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?", host):
            raise FedcanonError(
                f"{host!r} is neither the name nor the IP address of a host: use, for example, "
                "--host fl.example.org."
            ) from None


def _listens_on(hosts: Sequence[str]) -> list[str]:
    """Return the addresses on which the server listens: all, unless it is localhost."""
    if hosts[0] in ("127.0.0.1", "localhost"):
        return ["127.0.0.1"]
    return ["0.0.0.0", *(["[::]"] if any(":" in host for host in hosts) else [])]


def _user() -> str:
    """Return the name of the user who makes the folder, as whom the server is to run."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as in containers
        return "fedcanon"


def _package_name(name: str) -> str:
    """Return a name that Flower accepts for an app."""
    letters = [c if c.isascii() and c.isalnum() else "-" for c in name.lower()]
    return "".join(letters).strip("-") or "deployment"


def _write(place: Path, name: str, values: dict[str, object]) -> None:
    source = files("fedcanon.deployment.app") / "templates" / f"{name.replace('/', '_')}.jinja"
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True)
    environment.filters |= {"toml": _toml, "shell": shlex.quote, "unit": _unit}
    text = environment.from_string(source.read_text(encoding="utf-8")).render(values)
    place.parent.mkdir(mode=0o700, exist_ok=True)
    place.write_text(text, encoding="utf-8")


def _toml(value: str) -> str:
    """Return a string as TOML writes it."""
    return tomli_w.dumps({"x": value}).removeprefix("x = ").rstrip()


def _unit(value: str) -> str:
    """Return a string as a word of a systemd unit."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
