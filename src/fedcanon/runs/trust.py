"""Which run folders may name code to import: the user's own, and those that the user trusts."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedcanon.data.partition import PARTITIONS
from fedcanon.files import private_file
from fedcanon.importing import is_import_path
from fedcanon.runs.config import Config


def code_named(config: Config) -> list[str]:
    """Return everything in a configuration that has the form package.module:Name.

    A run of the configuration imports no other code than this and fedcanon's own.
    """
    return sorted({text for text in _texts(config.model_dump()) if _names_code(text)})


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def _names_code(text: str) -> bool:
    first, *rest = text.split(":")  # a partition may have an argument: package.module:Name:2
    return first not in PARTITIONS and is_import_path(":".join([first, *rest[:1]]))


def seal(text: str) -> str:
    """Return a code for a text that nobody can know who does not know this user's key.

    The key is drawn at the first call. Without a home folder to keep it in, there is no code, and
    the result is empty.
    """
    with suppress(OSError, RuntimeError):  # the second if there is no home folder
        if key := _key():
            return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    return ""


def is_sealed(text: str, code: bytes) -> bool:
    """Tell whether ``code`` is this user's seal of a text."""
    own = seal(text).encode()
    return bool(own) and hmac.compare_digest(own, code)


def _key() -> bytes:
    path = Path.home() / ".fedcanon" / "key"
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with suppress(FileExistsError), private_file(path) as file:
        file.write(secrets.token_bytes(32))
    return path.read_bytes()
