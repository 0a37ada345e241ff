"""The status of a deployment, and orders of its operator, as files in the folder of the run.

The server writes clients, rounds and events to ``deployment.json``. An empty file in ``orders`` is
an order: "pause", "end", "exclude-2" or "admit-2" with the number of a client.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import astuple, dataclass, field
from datetime import datetime
from operator import add
from pathlib import Path

from pydantic import TypeAdapter

from fedcanon.deployment.membership import Membership
from fedcanon.deployment.protocol import Presence
from fedcanon.engines import Traffic
from fedcanon.errors import RunStoppedError
from fedcanon.files import read_json, write_whole
from fedcanon.text import printable

_log = logging.getLogger(__name__)

_FILE = "deployment.json"
_ORDERS = "orders"

MAX_EVENT = 500
"""Longer events are cut (number of characters)."""

PAUSE, END, EXCLUDE, ADMIT = "pause", "end", "exclude", "admit"
"""The orders of an operator."""

_LOOK_EVERY = 0.5
"""Seconds between two looks for orders while there is nothing else to do."""


@dataclass
class RoundTimes:
    """How many rounds there were, and the seconds that they and their slowest clients took.

    ``server_seconds`` are those in which the server combined updates and wrote its files.
    """

    count: int = 0
    seconds: float = 0.0
    client_seconds: float = 0.0
    server_seconds: float = 0.0


@dataclass
class LastAnswer:
    """The last answer of a client: when it came, seconds of its own work, its size, its fault."""

    when: str = ""
    seconds: float = 0.0
    bytes: int = 0
    fault: str = ""


@dataclass(frozen=True)
class Situation:
    """What ``deployment.json`` tells after ``round`` rounds.

    ``keeper`` says who keeps the clients' states, the server or the clients; ``present`` are the
    clients that are there. Times and traffic are those since the server was started.
    ``distances`` are what a robust rule has found last, see ``Verdict``.
    """

    round: int
    keeper: str
    present: dict[int, Presence]
    membership: Membership
    since_start: RoundTimes
    traffic: Traffic
    events: list[str] = field(default_factory=list)
    answers: dict[int, LastAnswer] = field(default_factory=dict)
    paused: bool = False
    distances: dict[int, float] = field(default_factory=dict)


_SITUATION = TypeAdapter(Situation)


class Status:
    """Writes the status of a deployment and reads the orders of its operator."""

    def __init__(self, keeper: str) -> None:
        self.folder: Path | None = None
        self.distances: dict[int, float] = {}
        self._keeper = keeper
        self._events = deque[str](maxlen=30)
        self._times = RoundTimes()
        self._traffic = Traffic()
        self._answers: dict[int, LastAnswer] = {}
        self._last: tuple[int, Membership, dict[int, Presence]] | None = None

    def note(self, event: str) -> None:
        """Log an event for the operator and keep it for the status file."""
        event = printable(event)[:MAX_EVENT]
        if self._events and self._events[-1].endswith(f"  {event}"):
            return  # an event that repeats for an hour is reported once
        self._events.append(f"{_now()}  {event}")
        _log.warning(event)

    def answered(self, client: int, seconds: float, size: int) -> None:
        """Record an accepted answer of a client."""
        self._answers[client] = LastAnswer(_now(), seconds, size)

    def refused(self, client: int, what: str, why: str) -> None:
        """Note that the answer of a client was refused."""
        self.note(f"{what}: refused the answer of client {client}: {why}")
        self._answers[client] = LastAnswer(_now(), fault=why)

    def add_round(self, times: RoundTimes, traffic: Traffic) -> None:
        """Add the durations and the traffic of a round to the totals."""
        self._times = RoundTimes(*map(add, astuple(self._times), astuple(times)))
        self._traffic += traffic

    def write(self, t: int, membership: Membership, present: dict[int, Presence]) -> None:
        """Write the status file after ``t`` rounds, if the run has a folder."""
        if self.folder is None:
            return
        self._last = t, membership, present
        content = Situation(
            t,
            self._keeper,
            present,
            membership,
            self._times,
            self._traffic,
            list(self._events),
            self._answers,
            paused=self._has(PAUSE),
            distances=self.distances,
        )
        write_whole(self.folder / _FILE, _SITUATION.dump_json(content, indent=1).decode())

    # Orders

    def ordered(self, order: str) -> set[int]:
        """Return the clients of which this was ordered."""
        if self.folder is None:
            return set()
        names = (path.name for path in (self.folder / _ORDERS).glob(f"{order}-*"))
        numbers = (name.removeprefix(f"{order}-") for name in names)
        return {int(number) for number in numbers if number.isdecimal() and number.isascii()}

    def withdraw(self, order: str, client: int | None = None) -> None:
        """Forget an order that was obeyed."""
        if self.folder is not None:
            withdraw_order(self.folder, order, client)

    def must_end(self) -> bool:
        """Tell whether the operator wants the run to end now; wait here while it is to pause."""
        if self._has(PAUSE) and not self._has(END):
            self.note("paused by the operator")
            if self._last is not None:
                self.write(*self._last)
            while self._has(PAUSE) and not self._has(END):
                time.sleep(_LOOK_EVERY)
            self.note("resumed by the operator")
        ends = self._has(END)
        self.withdraw(END)
        return ends

    def wait(self, seconds: float) -> None:
        """Wait before clients are asked again.

        Raises:
            RunStoppedError: The operator ends the run.
        """
        if self.must_end():
            raise RunStoppedError("ended by the operator in a round that had too few answers.")
        time.sleep(seconds)

    def _has(self, order: str) -> bool:
        return self.folder is not None and _order_file(self.folder, order).exists()


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


def _order_file(folder: Path, order: str, client: int | None = None) -> Path:
    return folder / _ORDERS / (order if client is None else f"{order}-{client}")


def read_status(folder: Path) -> Situation | None:
    """Return the content of the status file, or None if there is none yet.

    Raises:
        FedcanonError: The file cannot be read.
    """
    return read_json(folder / _FILE, _SITUATION)


def give_order(folder: Path, order: str, client: int | None = None) -> None:
    """Order the server to pause, to end, or to exclude or admit a client before its next round."""
    (folder / _ORDERS).mkdir(exist_ok=True)
    _order_file(folder, order, client).touch()


def withdraw_order(folder: Path, order: str, client: int | None = None) -> None:
    """Withdraw an order, if it was given."""
    _order_file(folder, order, client).unlink(missing_ok=True)
