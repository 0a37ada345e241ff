"""Writes the folder of a site: what a client needs on its own machine."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import tomli_w

from fedcanon.deployment.app.credentials import write_node_key
from fedcanon.deployment.secure.identity import FILE as IDENTITY
from fedcanon.deployment.secure.identity import Identity

DATA_NODE = """
[node]  # what the function load in app/data.py gets as node
# data = "/srv/table.csv"
"""

TABLE_NODE = """
[node]  # the site's own table, and what it allows; nobody else can change this
table = "table.csv"
# name = "Aarhus"
# columns = "age, sex"        # may be used; all without it
# minimum_rows = 5            # of the site, and of any part that is asked about
# minimum_count = 5           # rows of a level that is named
# minimum_sites = 1           # over which an answer must be added up
# parameters_per_row = 0.33   # of a model without penalty
# penalised = true            # whether models with a penalty may have more
"""

UNIT = """\
# Runs this site from the start of the machine on. As root:
#   useradd --system fedcanon
#   chown -R fedcanon: {place}
#   cp {place}/fedcanon-site.service /etc/systemd/system/fedcanon-site-{client}.service
#   systemctl enable --now fedcanon-site-{client}
[Unit]
Description=fedcanon, client {client} of {server}
Wants=network-online.target
After=network-online.target

[Service]
User=fedcanon
ExecStart={python} -m fedcanon site start {place}
Restart=always
RestartSec=10
KillMode=mixed
TimeoutStopSec=30
UMask=0077
# The site reads its data and programs and writes nothing but its state.
ReadWritePaths={place}
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=true
PrivateDevices=true
NoNewPrivileges=true
CapabilityBoundingSet=
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=true
RestrictSUIDSGID=true
LockPersonality=true
ProtectClock=true
ProtectControlGroups=true
ProtectHostname=true
ProtectKernelLogs=true
ProtectKernelModules=true
ProtectKernelTunables=true
ProtectProc=invisible
SystemCallArchitectures=native

[Install]
WantedBy=multi-user.target
"""


def write_site(
    folder: Path,
    deployment: Path,
    client: int,
    server: str,
    port: int,
    authority: Path,
    node: str = DATA_NODE,
    identity: Identity | None = None,
) -> None:
    """Write the folder of one client, for its owner alone.

    Args:
        folder: The folder to make.
        deployment: Where the folder of the whole deployment will be.
        client: The client's number.
        server: Host and port of the server.
        port: The port that the SuperNode uses on the client's machine.
        authority: The certificate of the authority that has signed the server's.
        node: The end of its site.toml: what its app is told.
        identity: By which other sites know it in secure sums, to try them.
    """
    folder.mkdir(mode=0o700, parents=True)
    settings = {
        "client": client,
        "server": server,
        "root_certificates": "ca.pem",
        "key": "key",
        "state": "state",
        "port": port,
    }
    content = tomli_w.dumps(settings) + node
    (folder / "site.toml").write_text(content, encoding="utf-8")
    shutil.copy(authority, folder / "ca.pem")
    write_node_key(folder / "key")
    if identity is not None:
        identity.write(folder / IDENTITY)
    place = deployment / "sites" / str(client)
    path = str(place).replace("%", "%%")  # which systemd would replace
    unit = UNIT.format(place=path, client=client, server=server, python=sys.executable)
    (folder / "fedcanon-site.service").write_text(unit, encoding="utf-8")
