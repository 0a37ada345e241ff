"""The folder of a search: one question, asked by one process at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from pydantic import TypeAdapter

from fedcanon.errors import FedcanonError
from fedcanon.files import explained, new_folder, read_json, write_whole
from fedcanon.runs.config import Config
from fedcanon.runs.folder import runs_folder

Question = Mapping[str, Any]
"""All that decides what a search finds, as JSON: the same question goes on in its folder."""

_FILE = "search.json"


def default_path(kind: str, config: Config, question: Question) -> Path:
    """A folder in the runs folder whose name is the same for the same question."""
    digest = blake2b(json.dumps(question).encode(), digest_size=4).hexdigest()
    name = config.model.name.replace(":", "_")
    return runs_folder() / f"{kind}-{config.data.name}-{name}-{digest}"


@contextmanager
def opened(path: Path, question: Question) -> Iterator[None]:
    """The folder of a question, made if it is not there, with every other process kept out."""
    file = path / _FILE
    if not file.exists():
        _make(path, question)
    before = read_json(file, TypeAdapter(Any))
    # What JSON makes of the question, since lists there were tuples here.
    changes = list(_differences(before, json.loads(json.dumps(question)), ""))
    if changes:
        raise FedcanonError(
            f"the folder {path} holds another search ({'; '.join(changes[:3])}): "
            "choose another --folder."
        )
    try:
        with FileLock(path / ".lock").acquire(blocking=False):
            yield
    except Timeout:
        raise FedcanonError(
            f"the search in {path} is going on in another process: wait for its end, or stop it."
        ) from None


def _make(path: Path, question: Question) -> None:
    """The folder with its question in it, both at once."""
    with explained(f"cannot make the folder {path}"):
        if path.exists() and any(path.iterdir()):
            raise FedcanonError(
                f"the folder {path} exists already and holds no search: choose another --folder."
            )
        with new_folder(path) as folder:
            write_whole(folder / _FILE, json.dumps(question, indent=2))


def _differences(before: Any, now: Any, key: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        for name in before | now:
            yield from _differences(before.get(name), now.get(name), f"{key}.{name}".strip("."))
    elif before != now:
        yield f"{key} was {_short(before)} and is {_short(now)}"


def _short(value: Any) -> str:
    return "unset" if value is None else str(value)
