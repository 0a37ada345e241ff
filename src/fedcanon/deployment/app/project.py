"""Writes the folder of a deployment."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from fedcanon.deployment.app.credentials import write_certificates
from fedcanon.deployment.app.sites import write_site
from fedcanon.errors import FedcanonError
from fedcanon.files import explained, new_folder

FILES = (
    "README.md",
    "pyproject.toml",
    "flower/config.toml",
    "app/__init__.py",
    "app/server.py",
    "app/client.py",
    "app/data.py",
)


def write_app(folder: Path, config: str, clients: int, hosts: Sequence[str], port: int) -> None:
    """Write the folder of an app; if that fails, no part of the folder remains.

    Args:
        folder: The folder, which must not exist.
        config: The content of the configuration file.
        clients: The number of clients.
        hosts: The names and addresses of the server; clients connect to the first.
        port: The port of the server.

    Raises:
        FedcanonError: The folder exists, has a space in its path, or cannot be written.
    """
    if folder.exists():
        raise FedcanonError(f"{folder} exists already: choose another folder.")
    folder = folder.absolute()
    if any(character.isspace() for character in str(folder)):
        raise FedcanonError(f"the path {folder} has a space: Flower needs a path without spaces.")
    with explained(f"cannot write {folder}"), new_folder(folder) as unfinished:
        values = {"folder": folder, "clients": clients, "address": f"{hosts[0]}:{port}"}
        values |= {"listen": _listens_on(hosts[0]), "port": port}
        values |= {"name": _package_name(folder.name)}
        for name in FILES:
            place = unfinished / name
            place.parent.mkdir(exist_ok=True)
            place.write_text(_rendered(name, values), encoding="utf-8")
        (unfinished / "app" / "run.toml").write_text(config, encoding="utf-8")
        write_certificates(unfinished / "certificates", hosts)
        for client in range(clients):
            place = unfinished / "sites" / str(client)
            authority = unfinished / "certificates" / "ca.pem"
            write_site(place, folder, client, f"{hosts[0]}:{port}", port + 2 + client, authority)


def _listens_on(host: str) -> str:
    """Return the address on which the server listens: all interfaces, unless it is localhost."""
    return host if host in ("127.0.0.1", "localhost") else "0.0.0.0"


def _package_name(name: str) -> str:
    """Return a name that Flower accepts for an app."""
    letters = [c if c.isascii() and c.isalnum() else "-" for c in name.lower()]
    return "".join(letters).strip("-") or "deployment"


def _rendered(name: str, values: dict[str, object]) -> str:
    source = files("fedcanon.deployment.app") / "templates" / f"{name.replace('/', '_')}.jinja"
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True)
    return environment.from_string(source.read_text(encoding="utf-8")).render(values)
