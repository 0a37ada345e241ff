"""The settings of a site, in its file site.toml."""

from __future__ import annotations

import re
import stat
import tomllib
from pathlib import Path
from typing import Annotated, Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
)

from fedcanon.errors import FedcanonError
from fedcanon.files import Count, explained

FILE = "site.toml"

_ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+):(\d{1,5})")


def _address(value: str) -> str:
    found = _ADDRESS.fullmatch(value)
    if not found or not 0 < int(found[2]) < 2**16:
        raise ValueError('give host and port, such as "fl.example.org:9100"')
    return value


def _path(value: object, info: ValidationInfo) -> Path:
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("give a path")
    assert info.context is not None
    folder: Path = info.context["folder"]
    return folder / Path(value).expanduser()


def _entry(value: object) -> object:
    if not isinstance(value, str | int | float):
        raise ValueError("give a text, a number, true or false")
    return value


_Path = Annotated[Path, BeforeValidator(_path)]
_Entry = Annotated[Any, AfterValidator(_entry)]
_Key = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]


class Site(BaseModel):
    """What a site is started with; paths in the file are relative to its folder.

    Attributes:
        client: The client's number.
        server: Host and port of the server.
        root_certificates: The certificate of the authority that has signed the server's.
        key: The private key by which the server knows this site.
        identity: The private key by which other sites know this site, in secure sums.
        state: The folder for what must survive a restart.
        port: The port on 127.0.0.1 by which the SuperNode gives out messages.
        node: Further entries that the app's function ``load`` gets, such as the path of a table.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    client: Count
    server: Annotated[str, AfterValidator(_address)]
    root_certificates: _Path = Field("ca.pem", validate_default=True)
    key: _Path = Field("key", validate_default=True)
    identity: _Path = Field("identity", validate_default=True)
    state: _Path = Field("state", validate_default=True)
    port: Annotated[int, Field(gt=0, lt=2**16)]
    node: dict[_Key, _Entry] = {}


def read_site(folder: Path) -> Site:
    """Read the settings in a site's folder, and check that the files they name can be used.

    Raises:
        FedcanonError: There is a mistake; one sentence for each.
    """
    path = folder / FILE
    try:
        with explained(f"cannot read {path}"):
            table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        site = Site.model_validate(table, context={"folder": folder.absolute()})
    except ValidationError as error:
        mistakes = (_sentence(path, mistake) for mistake in error.errors(include_url=False))
        raise FedcanonError("\n".join(mistakes)) from None
    except (ValueError, RecursionError) as error:
        raise FedcanonError(f"{path} is not valid TOML: {error}.") from None
    if own := site.node.keys() & {"client", "state", "identity"}:
        raise FedcanonError(f"{path}: {min(own)} does not belong in [node], but above it.")
    _check_certificates(site.root_certificates)
    _check_key(site.key)
    return site


def _sentence(path: Path, mistake: Any) -> str:
    key = ".".join(map(str, mistake["loc"]))
    if mistake["type"] == "extra_forbidden":
        return f"{path}: unknown key '{key}': use {', '.join(Site.model_fields)}."
    if mistake["type"] == "missing":
        return f"{path}: {key} is missing: add it."
    message = mistake["msg"].removeprefix("Value error, ")
    return f"{path}: {key}: {message[0].lower()}{message[1:]}."


def _check_certificates(path: Path) -> None:
    with explained(f"cannot read the certificate {path}"):
        if b"-----BEGIN CERTIFICATE-----" not in path.read_bytes():
            raise FedcanonError(f"{path} has no certificate: copy the ca.pem of the server.")


def _check_key(path: Path) -> None:
    new = f'make one with: ssh-keygen -t ecdsa -b 384 -N "" -f {path}'
    with explained(f"cannot read the key {path}"):
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise FedcanonError(f"others may read the key {path}: run chmod 600 {path}.")
        content = path.read_bytes()
    try:
        key = load_ssh_private_key(content, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise FedcanonError(f"{path} is no private key without a password: {new}.") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise FedcanonError(f"{path} is not the key of an elliptic curve: {new}.")
