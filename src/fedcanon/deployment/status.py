"""What can be seen of a deployment from outside, and what can be said to it.

Both are files in the run's folder: ``deployment.json`` tells of clients, rounds and events; a file
in ``leaving`` says that the client of this number leaves for good.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from fedcanon.deployment.books import Books
from fedcanon.deployment.protocol import Presence
from fedcanon.engines import Traffic
from fedcanon.files import read_json, write_whole

_log = logging.getLogger(__name__)

_FILE = "deployment.json"
_LEAVING = "leaving"


class Status:
    """The server's side: it writes what happens, and reads who is to leave."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self._events = deque[str](maxlen=30)
        self._rounds = {"count": 0, "seconds": 0.0, "client_seconds": 0.0}
        self._traffic = Traffic()

    def note(self, event: str) -> None:
        """Something happened that an operator wants to know."""
        if self._events and self._events[-1].endswith(f"  {event}"):
            return  # what goes on for an hour is told once
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        self._events.append(f"{now}  {event}")
        _log.warning(event)

    def took(self, seconds: float, client_seconds: float, traffic: Traffic) -> None:
        """A round took so long, of which the slowest client's own work."""
        self._rounds["count"] += 1
        self._rounds["seconds"] += seconds
        self._rounds["client_seconds"] += client_seconds
        self._traffic += traffic

    def write(self, books: Books, t: int, keeper: str, present: dict[int, Presence]) -> None:
        """Tell how things stand after ``t`` rounds."""
        if self.folder is None:
            return
        content = {
            "round": t,
            "keeper": keeper,
            "present": {client: asdict(presence) for client, presence in present.items()},
            "books": books.state(),
            "since_start": self._rounds,
            "traffic": asdict(self._traffic),
            "events": list(self._events),
        }
        write_whole(self.folder / _FILE, json.dumps(content, indent=1))

    def leaving(self) -> set[int]:
        """The clients that are to leave for good."""
        if self.folder is None:
            return set()
        asked = (path.name for path in (self.folder / _LEAVING).glob("*"))
        return {int(name) for name in asked if name.isdecimal()}


def read_status(folder: Path) -> dict[str, Any] | None:
    """What the server has told last; None where there is nothing yet."""
    return read_json(folder / _FILE, TypeAdapter(dict[str, Any]))


def ask_to_leave(folder: Path, client: int) -> None:
    """Have the server go on without this client, from its next round on."""
    (folder / _LEAVING).mkdir(exist_ok=True)
    (folder / _LEAVING / str(client)).touch()
