"""Copies a deployment, so that it can be tried on one machine."""

from __future__ import annotations

import re
import shutil
import socket
import tomllib
from pathlib import Path
from typing import Any

import tomli_w

from fedcanon.deployment.app.credentials import write_certificates
from fedcanon.deployment.app.sites import write_site
from fedcanon.deployment.operate.folder import CONNECTION, DeploymentFolder
from fedcanon.deployment.secure.configured import new_identities
from fedcanon.errors import FedcanonError
from fedcanon.runs.config import Config, changed, load_config

ROUNDS = 2
MOST_SITES = 3
"""A copy has at most so many sites, because all of them are on one machine."""

SAMPLES = 80
"""The number of training samples that a site of a copy makes up."""

MADE_UP = '''\
"""Made-up data of the configured shape, for a dry run."""

import numpy

from fedcanon.deployment.flower import ClientData

SHAPE, CLASSES = {shape}, {classes}


def load(client: int, node: dict) -> ClientData:
    labels = numpy.arange(node["samples"] + 20) % CLASSES
    inputs = numpy.random.default_rng(client).standard_normal((len(labels), *SHAPE), "float32")
    inputs += labels.reshape(-1, *[1] * len(SHAPE)).astype("float32") / CLASSES
    return ClientData((inputs[20:], labels[20:]), (inputs[:20], labels[:20]))
'''


def copy_of(folder: DeploymentFolder, place: Path) -> tuple[DeploymentFolder, int]:
    """Copy a deployment to a new place, with free ports of 127.0.0.1, new keys and made-up data.

    nginx keeps its settings, but for the ports. There are few sites and two rounds.

    Returns:
        The copy, and its public port.
    """
    config = _fewer(load_config(folder.path / "app" / "run.toml"))
    identities = new_identities(config)
    config = changed(config, {"deployment.identities": [own.public for own in identities]})
    public, inner, *ports = free_ports(2 + config.clients.count)
    place.mkdir(mode=0o700)
    shutil.copytree(folder.path / "app", place / "app")
    _write_toml(place / "app" / "run.toml", config.model_dump(exclude_none=True))
    data = MADE_UP.format(shape=config.deployment.shape, classes=config.deployment.classes)
    (place / "app" / "data.py").write_text(data, encoding="utf-8")
    project = _read_toml(folder.path / "pyproject.toml")
    project["tool"]["flwr"]["app"]["config"]["folder"] = str(place / "run")
    _write_toml(place / "pyproject.toml", project)

    write_certificates(place / "server", ["127.0.0.1", "localhost"])
    nginx = (folder.server / "nginx.conf").read_text(encoding="utf-8")
    nginx = nginx.replace(f"127.0.0.1:{folder.port};", f"127.0.0.1:{inner};")
    (place / "server" / "nginx.conf").write_text(_listening(nginx, public), encoding="utf-8")
    authority = str(place / "server" / "loopback" / "ca.pem")
    connection = {"address": f"127.0.0.1:{inner}", "root-certificates": authority}
    (place / "flower").mkdir(mode=0o700)
    superlinks = {"default": CONNECTION, CONNECTION: connection}
    _write_toml(place / "flower" / "config.toml", {"superlink": superlinks})

    for client, port in enumerate(ports):
        site, ca = place / "sites" / str(client), place / "server" / "ca.pem"
        own = identities[client] if identities else None
        write_site(site, place, client, f"127.0.0.1:{public}", port, ca, identity=own)
        settings = _read_toml(site / "site.toml") | {"node": {"samples": SAMPLES}}
        _write_toml(site / "site.toml", settings)
    return DeploymentFolder(place), public


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 on which nobody listens now."""
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in taken]
    for one in taken:
        one.close()
    return ports


def _fewer(config: Config) -> Config:
    """Return the configuration with few rounds and sites."""
    sites = min(config.clients.count, MOST_SITES)
    fewer: dict[str, object] = {"rounds": ROUNDS, "evaluate.every": 1, "clients.count": sites}
    fewer |= {"deployment.minimum": min(config.deployment.minimum, sites)}
    fewer |= {"deployment.samples": [], "deployment.identities": []}
    if config.clients.participants is not None:
        fewer["clients.participants"] = min(config.clients.participants, sites)
    return changed(config, fewer)


def _listening(nginx: str, port: int) -> str:
    """Return settings of nginx with one port of 127.0.0.1 in the place of all others."""
    lines = nginx.splitlines(keepends=True)
    listens = [line for line in lines if line.split()[:1] == ["listen"]]
    if not listens:
        raise FedcanonError(
            "server/nginx.conf listens nowhere: it needs 'listen ADDRESS:PORT ssl;'."
        )
    here = re.sub(r"listen\s+[^\s;]+", f"listen 127.0.0.1:{port}", listens[0])
    kept = [line for line in lines if line not in listens[1:]]
    return "".join(here if line == listens[0] else line for line in kept)


def _read_toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _write_toml(path: Path, content: dict[str, Any]) -> None:
    path.write_text(tomli_w.dumps(content), encoding="utf-8")
