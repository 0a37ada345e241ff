"""The keys of the sites: which Flower node speaks for which client.

A client number belongs to a key, the one in ``sites/N/key.pub``. Flower gives the key another node
id whenever the SuperLink is restarted, so the ids in ``nodes.json`` are derived, and written anew.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from fedcanon.deployment.flower.nodes import read_nodes, write_nodes
from fedcanon.deployment.operate.checks import Verdict
from fedcanon.deployment.operate.folder import CONNECTION, DeploymentFolder
from fedcanon.errors import FedcanonError
from fedcanon.files import explained, write_whole


def register_all(folder: DeploymentFolder) -> dict[int, int]:
    """Register the keys of all sites at a new SuperLink, and write ``nodes.json``.

    Returns:
        The node of every client.

    Raises:
        FedcanonError: A key is no key, two sites have the same one, or the SuperLink refuses.
    """
    keys = _distinct(folder)
    told = _supernode(folder, *(("register", str(path)) for path in keys.values()))
    found = {client: int(answer["node-id"]) for client, answer in zip(keys, told, strict=True)}
    write_nodes(folder.nodes, found)
    return found


def check_keys(folder: DeploymentFolder) -> Verdict:
    """Check that every site has a key of its own."""
    try:
        return Verdict("keys of sites", True, f"{len(_distinct(folder))}, all different")
    except FedcanonError as error:
        return Verdict("keys of sites", False, str(error))


def _distinct(folder: DeploymentFolder) -> dict[int, Path]:
    """Return the sites' keys, all usable and different."""
    keys = dict(sorted(folder.keys.items()))
    owners: dict[bytes, int] = {}
    for client, path in keys.items():
        if (other := owners.setdefault(_content(path), client)) != client:
            raise FedcanonError(f"the sites {other} and {client} have the same key: change one.")
    return keys


def replace_key(folder: DeploymentFolder, client: int, key: Path, *, running: bool) -> None:
    """Give a client's number to another key; the old one is refused from now on.

    Args:
        folder: The deployment.
        client: The number; one that has no key yet is new.
        key: The file with the public key.
        running: Whether the server runs, which is then told at once.

    Raises:
        FedcanonError: The file is no key, it is another site's, or the SuperLink refuses.
    """
    content = _content(key)
    for other, path in folder.keys.items():
        if other != client and _content(path) == content:
            raise FedcanonError(f"{key} is the key of site {other}: every site has its own.")
    place = folder.site(client) / "key.pub"
    if place.exists() and _content(place) == content:
        return
    with explained(f"cannot write {place}"):
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(place, content.decode() + "\n")
    if running:
        nodes = read_nodes(folder.nodes)
        commands = [("register", str(place))]
        if client in nodes:
            commands.append(("unregister", str(nodes[client])))
        new = int(_supernode(folder, *commands)[0]["node-id"])
        write_nodes(folder.nodes, {**nodes, client: new})


def _content(path: Path) -> bytes:
    """Return a public key without its comment."""
    with explained(f"cannot read {path}"):
        content = path.read_bytes()
    try:
        key = load_ssh_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise FedcanonError(
            f"{path} is no public key that Flower takes: a site makes one with "
            "'ssh-keygen -t ecdsa -b 384 -N \"\" -f key' and sends key.pub."
        )
    return b" ".join(content.split()[:2])


def _supernode(folder: DeploymentFolder, *commands: tuple[str, str]) -> list[dict[str, Any]]:
    """Call commands of ``flwr supernode``, all in one process; return their answers.

    Raises:
        FedcanonError: One of them fails.
    """
    ends = (CONNECTION, "--format", "json")
    done = subprocess.run(
        [sys.executable, "-m", "fedcanon.deployment.operate.flower", "commands"],
        input=json.dumps([("supernode", *words, *ends) for words in commands]),
        env=folder.environment,
        capture_output=True,
        text=True,
    )
    answers = done.stdout.split("\0")
    told = [json.loads(answer) for answer in answers[:-1]]
    if done.returncode or not all(answer["success"] for answer in told):
        said = (done.stderr or done.stdout).strip()
        raise FedcanonError(
            "'flwr supernode' failed with the key of a site: restart the server, which registers "
            f"all keys anew. Flower said: {said[-500:]}"
        )
    return told
