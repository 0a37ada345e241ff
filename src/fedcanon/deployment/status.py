"""What can be seen of a deployment from outside, and what can be said to it.

Both are files in the run's folder: ``deployment.json`` tells of clients, rounds and events; a file
in ``leaving`` says that the client of this number leaves for good.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from pydantic import TypeAdapter

from fedcanon.deployment.books import Books
from fedcanon.deployment.messages import Presence
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
    books: Books
    since_start: RoundTimes
    traffic: Traffic
    events: list[str] = field(default_factory=list)


_SITUATION = TypeAdapter(Situation)


class Status:
    """The server's side: it writes what happens, and reads who is to leave."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self._events = deque[str](maxlen=30)
        self._times = RoundTimes()
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
        self._times.count += 1
        self._times.seconds += seconds
        self._times.client_seconds += client_seconds
        self._traffic += traffic

    def write(self, books: Books, t: int, keeper: str, present: dict[int, Presence]) -> None:
        """Tell how things stand after ``t`` rounds."""
        if self.folder is None:
            return
        events = list(self._events)
        content = Situation(t, keeper, present, books, self._times, self._traffic, events)
        write_whole(self.folder / _FILE, _SITUATION.dump_json(content, indent=1).decode())

    def leaving(self) -> set[int]:
        """The clients that are to leave for good."""
        if self.folder is None:
            return set()
        asked = (path.name for path in (self.folder / _LEAVING).glob("*"))
        return {int(name) for name in asked if name.isdecimal()}


def read_status(folder: Path) -> Situation | None:
    """What the server wrote last into the folder of a run; None if it has not done a round."""
    return read_json(folder / _FILE, _SITUATION)


def ask_to_leave(folder: Path, client: int) -> None:
    """Have the server go on without this client, from its next round on."""
    (folder / _LEAVING).mkdir(exist_ok=True)
    (folder / _LEAVING / str(client)).touch()
