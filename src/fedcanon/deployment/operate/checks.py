"""What can be checked of a deployment's server: its files, and its doors from outside."""

from __future__ import annotations

import ssl
import stat
import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPException, HTTPSConnection
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from fedcanon.deployment.operate.folder import DeploymentFolder
from fedcanon.errors import first_line

PROTOBUF = "application/protobuf"
"""The type of the content of Flower's requests."""

CLOSED = (
    *("/v1/control/list-runs", "/v1/control/start-run", "/v1/control/register-node"),
    *("/v1/runtime/acquire-task", "/v1/runtime/get-nodes", "/v1/runtime/push-messages"),
    *("/v1/fleet/../control/start-run", "/v1/fleet/%2e%2e/control/start-run", "/v1/fleet/"),
    *(
        "/v1/fleet//control/start-run",
        "//v1/control/start-run",
        "/docs",
        "/openapi.json",
        "/health",
    ),
)
"""What nobody must find on the public port."""

OPEN = "/v1/fleet/pull-messages"
"""What a site finds there, if it has a key."""


@dataclass(frozen=True)
class Verdict:
    """What a check has found."""

    check: str
    passed: bool
    found: str


def check_certificate(folder: DeploymentFolder) -> Verdict:
    """Check that sites will accept the server's certificate: authority, key, hosts and days."""
    name = "certificate"
    try:
        certificate = x509.load_pem_x509_certificate((folder.server / "server.pem").read_bytes())
        authority = x509.load_pem_x509_certificate((folder.server / "ca.pem").read_bytes())
        key = load_pem_private_key((folder.server / "server.key").read_bytes(), None)
        if key.public_key() != certificate.public_key():
            return Verdict(name, False, "server.key is not the key of server.pem")
        certificate.verify_directly_issued_by(authority)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, TypeError, x509.ExtensionNotFound) as error:
        return Verdict(name, False, first_line(error))
    except InvalidSignature:
        return Verdict(name, False, "ca.pem has not signed server.pem")
    known = {str(host) for host in names.get_values_for_type(x509.DNSName)}
    known |= {str(host) for host in names.get_values_for_type(x509.IPAddress)}
    wrong = sorted(_hosts(folder) - known)
    if wrong:
        return Verdict(name, False, f"not valid for {', '.join(wrong)}")
    left = (certificate.not_valid_after_utc - datetime.now(UTC)).days
    return Verdict(name, left > 0, f"for {', '.join(sorted(known))}; {left} days left")


def _hosts(folder: DeploymentFolder) -> set[str]:
    """Return the hosts to which the sites connect."""
    found = folder.path.glob("sites/*/site.toml")
    servers = [tomllib.loads(path.read_text(encoding="utf-8")).get("server", "") for path in found]
    return {_plain(str(server).rpartition(":")[0].strip("[]")) for server in servers}


def _plain(host: str) -> str:
    try:
        return str(ip_address(host))
    except ValueError:
        return host


def check_secrets(folder: DeploymentFolder, what: str) -> Verdict:
    """Check that nobody but the owner can read keys, tokens and the run.

    The verdict says ``what`` they are.
    """
    secrets = [folder.path, folder.server / "server.key", folder.path / "flower", folder.run]
    secrets += [folder.loopback, *folder.path.glob("sites/*/key")]
    there = [path for path in secrets if path.exists()]
    bare = [str(path) for path in there if stat.S_IMODE(path.stat().st_mode) & 0o077]
    found = f"for others too: {', '.join(bare)}" if bare else f"{len(there)} files and folders"
    return Verdict(f"{what} for the owner alone", not bare, found)


def check_doors(port: int, authority: Path) -> list[Verdict]:
    """Check, as a stranger from outside would, what the public port answers."""
    answers = {path: status(port, path, authority) for path in CLOSED}
    wrong = [f"{path} answers {code}" for path, code in answers.items() if code != 404]
    fleet = status(port, OPEN, authority)
    found = ", ".join(wrong) or f"{len(CLOSED)} ways tried, all 404"
    return [
        Verdict("control and runtime closed to all", not wrong, found),
        Verdict("sites must show a key", fleet == 401, f"without one: {fleet}"),
    ]


def check_loopback(port: int, authority: Path) -> Verdict:
    """Check that other users of the server's machine cannot control the SuperLink."""
    paths = ("/v1/control/list-runs", "/v1/runtime/acquire-task", "/v1/runtime/get-nodes")
    answers = {status(port, path, authority) for path in paths}
    found = f"without the secrets: {', '.join(map(str, answers))}"
    return Verdict("other users of this machine refused", answers == {401}, found)


def status(port: int, path: str, authority: Path) -> int:
    """Return the status of the answer to a request on 127.0.0.1; 0 if there is no answer."""
    context = ssl.create_default_context(cafile=authority)
    connection = HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
    try:
        connection.request("POST", path, b"", {"content-type": PROTOBUF, "accept": PROTOBUF})
        return connection.getresponse().status
    except (OSError, HTTPException):
        return 0
    finally:
        connection.close()
