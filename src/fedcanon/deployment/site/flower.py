"""How Flower's programs are started at a site."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import tomli_w

from fedcanon.deployment.app.credentials import write_certificates
from fedcanon.deployment.site.settings import Site
from fedcanon.files import private_file

HOST = "127.0.0.1"
SECRET, AUTHORITY = "secret", "certificates/ca.pem"
"""Files in the private folder that a worker needs."""

_DAYS = 3650  # the certificate of the local port lives as long as the process


@contextmanager
def private_folder(site: Site) -> Iterator[Path]:
    """Give a folder for the owner alone, with what SuperNode and worker know each other by.

    The SuperNode gives messages only to those who know the secret. The worker takes them, and the
    code with them, only from the one who has the certificate, whoever else may listen on the port.
    """
    with TemporaryDirectory(prefix="fedcanon-site-") as name:
        folder = Path(name)
        with private_file(folder / SECRET) as file:
            file.write(secrets.token_bytes(32))
        write_certificates(folder / "certificates", [HOST], days=_DAYS)
        own = {"client": site.client, "state": str(site.state), "identity": str(site.identity)}
        node = {**own, **site.node}
        (folder / "node.toml").write_text(tomli_w.dumps(node), encoding="utf-8")
        yield folder


def supernode_arguments(site: Site, private: Path, *, with_worker: bool) -> list[str]:
    """Return the arguments of a SuperNode that has a worker, or else starts its own processes."""
    certificates = private / "certificates"
    arguments = [
        *("--superlink", site.server),
        *("--root-certificates", site.root_certificates),
        *("--auth-supernode-private-key", site.key),
        *("--host", HOST, "--port", site.port),
        *("--ssl-certfile", certificates / "server.pem"),
        *("--ssl-keyfile", certificates / "server.key"),
        *("--ssl-ca-certfile", private / AUTHORITY),
        *("--node-config", private / "node.toml"),
        *("--isolation", "process" if with_worker else "subprocess"),
    ]
    if with_worker:
        arguments += ["--superexec-auth-secret-file", private / SECRET]
    return list(map(str, arguments))
