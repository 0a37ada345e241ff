"""The status of a deployment, and requests of its operator, as files in the folder of the run.

The server writes clients, rounds and events to ``deployment.json``. An empty file in ``leaving``,
named after the number of a client, asks the server to remove this client permanently.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from pydantic import TypeAdapter

from fedcanon.deployment.membership import Membership
from fedcanon.deployment.protocol import Presence
from fedcanon.engines import Traffic
from fedcanon.files import read_json, write_whole

_log = logging.getLogger(__name__)

_FILE = "deployment.json"
_LEAVING = "leaving"


@dataclass
class RoundTimes:
    """How many rounds there were, and the seconds that they and their slowest clients took."""

    count: int = 0
    seconds: float = 0.0
    client_seconds: float = 0.0


@dataclass(frozen=True)
class Situation:
    """What ``deployment.json`` tells after ``round`` rounds.

    ``keeper`` says who keeps the clients' states, the server or the clients; ``present`` are the
    clients that are there. Times and traffic are those since the server was started.
    """

    round: int
    keeper: str
    present: dict[int, Presence]
    membership: Membership
    since_start: RoundTimes
    traffic: Traffic
    events: list[str] = field(default_factory=list)


_SITUATION = TypeAdapter(Situation)


class Status:
    """Writes the status of a deployment and reads which clients are asked to leave."""

    def __init__(self, keeper: str) -> None:
        self.folder: Path | None = None
        self._keeper = keeper
        self._events = deque[str](maxlen=30)
        self._times = RoundTimes()
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
        self._times.count += 1
        self._times.seconds += seconds
        self._times.client_seconds += client_seconds
        self._traffic += traffic

    def write(self, t: int, membership: Membership, present: dict[int, Presence]) -> None:
        """Write the status file after ``t`` rounds, if the run has a folder."""
        if self.folder is None:
            return
        events = list(self._events)
        content = Situation(
            t, self._keeper, present, membership, self._times, self._traffic, events
        )
        write_whole(self.folder / _FILE, _SITUATION.dump_json(content, indent=1).decode())

    def leaving(self) -> set[int]:
        """Return the clients that the operator wants to remove permanently."""
        if self.folder is None:
            return set()
        asked = (path.name for path in (self.folder / _LEAVING).glob("*"))
        return {int(name) for name in asked if name.isdecimal()}


def read_status(folder: Path) -> Situation | None:
    """Return the content of the status file, or None if there is none yet.

    Raises:
        FedcanonError: The file cannot be read.
    """
    return read_json(folder / _FILE, _SITUATION)


def ask_to_leave(folder: Path, client: int) -> None:
    """Ask the server to continue without this client from its next round on."""
    (folder / _LEAVING).mkdir(exist_ok=True)
    (folder / _LEAVING / str(client)).touch()
