"""The status of a deployment, and requests of its operator, as files in the folder of the run.

The server writes clients, rounds and events to ``deployment.json``. An empty file in ``leaving``,
named after the number of a client, asks the server to remove this client permanently.
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

from fedcanon.deployment.membership import Membership
from fedcanon.deployment.protocol import Presence
from fedcanon.engines import Traffic
from fedcanon.files import read_json, write_whole

_log = logging.getLogger(__name__)

_FILE = "deployment.json"
_LEAVING = "leaving"


class Status:
    """Writes the status of a deployment and reads which clients are asked to leave."""

    def __init__(self, keeper: str) -> None:
        self.folder: Path | None = None
        self._keeper = keeper
        self._events = deque[str](maxlen=30)
        self._rounds = {"count": 0, "seconds": 0.0, "client_seconds": 0.0}
        self._traffic = Traffic()

    def note(self, event: str) -> None:
        """Log an event for the operator and keep it for the status file."""
        if self._events and self._events[-1].endswith(f"  {event}"):
            return  # an event that repeats for an hour is reported once
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        self._events.append(f"{now}  {event}")
        _log.warning(event)

    def add_round(self, seconds: float, client_seconds: float, traffic: Traffic) -> None:
        """Add the duration and the traffic of a round to the totals.

        ``client_seconds`` is the time that the slowest client has worked.
        """
        self._rounds["count"] += 1
        self._rounds["seconds"] += seconds
        self._rounds["client_seconds"] += client_seconds
        self._traffic += traffic

    def write(self, t: int, membership: Membership, present: dict[int, Presence]) -> None:
        """Write the status file after ``t`` rounds, if the run has a folder."""
        if self.folder is None:
            return
        content = {
            "round": t,
            "keeper": self._keeper,
            "present": {client: asdict(presence) for client, presence in present.items()},
            "membership": membership.state(),
            "since_start": self._rounds,
            "traffic": asdict(self._traffic),
            "events": list(self._events),
        }
        write_whole(self.folder / _FILE, json.dumps(content, indent=1))

    def leaving(self) -> set[int]:
        """Return the clients that the operator wants to remove permanently."""
        if self.folder is None:
            return set()
        asked = (path.name for path in (self.folder / _LEAVING).glob("*"))
        return {int(name) for name in asked if name.isdecimal()}


def read_status(folder: Path) -> dict[str, Any] | None:
    """Return the content of the status file, or None if there is none yet.

    Raises:
        FedcanonError: The file cannot be read.
    """
    return read_json(folder / _FILE, TypeAdapter(dict[str, Any]))


def ask_to_leave(folder: Path, client: int) -> None:
    """Ask the server to continue without this client from its next round on."""
    (folder / _LEAVING).mkdir(exist_ok=True)
    (folder / _LEAVING / str(client)).touch()
