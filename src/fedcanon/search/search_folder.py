"""The folder of a sweep or a path: it remembers what was asked, and one process works in it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from fedcanon.errors import FedcanonError
from fedcanon.files import explained, locked, new_folder, read_json, write_whole
from fedcanon.runs.config import Config
from fedcanon.runs.folder import runs_folder

SearchIdentity = Mapping[str, Any]
"""Everything that decides what a search finds, as JSON.

A search with the same identity goes on in the same folder.
"""

_FILE = "search.json"


def default_path(kind: str, config: Config, identity: SearchIdentity) -> Path:
    """The folder of a search that names none: it has the same name for the same identity.

    Args:
        kind: What is searched, "sweep" or "path".
        config: The configuration that the search changes.
        identity: Everything that decides what the search finds.
    """
    digest = blake2b(json.dumps(identity).encode(), digest_size=4).hexdigest()
    name = config.model.name.replace(":", "_")
    return runs_folder() / f"{kind}-{config.data.name}-{name}-{digest}"


@contextmanager
def open_search(path: Path, identity: SearchIdentity) -> Iterator[None]:
    """Make or reopen the folder of a search, and keep other processes out while it is in use.

    Raises:
        FedcanonError: The folder holds something else, is in use, or cannot be made.
    """
    file = path / _FILE
    if not file.exists():
        _make(path, identity)
    before = read_json(file, TypeAdapter(Any))
    # What JSON makes of the identity, since lists there were tuples here.
    changes = list(_differences(before, json.loads(json.dumps(identity)), ""))
    if changes:
        raise FedcanonError(
            f"the folder {path} holds another search ({'; '.join(changes[:3])}): "
            "choose another --folder."
        )
    going_on = f"the search in {path} is going on in another process"
    with locked(path, f"{going_on}: wait for its end, or stop it."):
        yield


def write_table(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows with the same columns as a CSV file."""
    import pandas as pd  # takes half a second, which most commands do not need

    write_whole(path, pd.DataFrame(rows, dtype=object).to_csv(index=False, lineterminator="\n"))


def _make(path: Path, identity: SearchIdentity) -> None:
    """Make the folder together with the file that says what is searched."""
    with explained(f"cannot make the folder {path}"):
        if path.exists() and any(path.iterdir()):
            raise FedcanonError(
                f"the folder {path} exists already and holds no search: choose another --folder."
            )
        with new_folder(path) as folder:
            write_whole(folder / _FILE, json.dumps(identity, indent=2))


def _differences(before: Any, now: Any, key: str) -> Iterator[str]:
    """A phrase for every value in which two nested tables differ; ``key`` is where they are."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name in before | now:
            yield from _differences(before.get(name), now.get(name), f"{key}.{name}".strip("."))
    elif before != now:
        yield f"{key} was {_short(before)} and is {_short(now)}"


def _short(value: Any) -> str:
    return "unset" if value is None else str(value)
