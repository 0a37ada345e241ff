"""What all trackers share: they send settings and measures, and never stop a run."""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from fedcanon.errors import FedcanonError
from fedcanon.files import write_whole
from fedcanon.runs.config import Table, dotted
from fedcanon.runs.federation import Federation
from fedcanon.runs.folder import RunFolder
from fedcanon.runs.measures import Record
from fedcanon.runs.observers import Observer
from fedcanon.text import printable

Settings = dict[str, str | int | float]
"""A configuration with dotted keys: ``{"algorithm.beta": 0.1, …}``."""

logger = logging.getLogger(__name__)


class Tracker(Observer, ABC):
    """Sends a run to a tracking tool: its settings once, its measures after each round.

    A subclass sets ``name`` and ``module`` and implements ``open``, ``log`` and ``close``. If one
    of them raises an error, the tracker is dropped with a warning and the run goes on. A run that
    is resumed first sends the measures that the tool does not have, for instance because it was
    not tracked before or a server was down.

    Args:
        folder: The folder of the run.

    Raises:
        FedcanonError: The package of the tool is not installed.
    """

    name: ClassVar[str]
    module: ClassVar[str]
    """The module of the tool; ``pip install fedcanon[NAME]`` installs it."""

    def __init__(self, folder: Path) -> None:
        self.library = self.load_library()
        self.run = RunFolder(folder)
        self._known = -1  # the last round that the tool had when this tracker was opened
        self._is_open = self._completed = False

    @classmethod
    def load_library(cls) -> Any:
        """Import the module of the tool.

        Raises:
            FedcanonError: It is not installed.
        """
        try:
            return import_module(cls.module)
        except ImportError:
            raise FedcanonError(
                f'the tracker {cls.name} needs a package: pip install "fedcanon[{cls.name}]".'
            ) from None

    @abstractmethod
    def open(self, settings: Settings) -> int:
        """Start the tool's run, or reopen it.

        Args:
            settings: The configuration of the run, with dotted keys.

        Returns:
            The last round that the tool has; −1 if it has none.
        """

    @abstractmethod
    def log(self, t: int, numbers: Mapping[str, float]) -> None:
        """Send the measures after round ``t``, by their names."""

    @abstractmethod
    def close(self, completed: bool) -> None:
        """Close the tool's run, which is ``completed`` or was interrupted."""

    def begin(self, federation: Federation, rounds: int) -> None:
        self._attempt(self._open_and_catch_up)

    def record(self, record: Record) -> None:
        if self._is_open:
            self._attempt(self._send, record)

    def end(self, stopped: str) -> None:
        self._completed = True

    def finish(self) -> None:
        """Close the tool's run, however the run itself ended."""
        if self._is_open:
            self._attempt(self.close, self._completed)

    def _open_and_catch_up(self) -> None:
        self._known = self.open(flattened(self.run.config.model_dump(exclude_none=True)))
        self._is_open = True
        for record in self.run.records():
            self._send(record)

    def _send(self, record: Record) -> None:
        """Send a record, unless the tool has it already."""
        if record.round > self._known:
            self.log(record.round, numbers(record))

    def _attempt(self, action: Callable[..., None], *arguments: Any) -> None:
        try:
            action(*arguments)
        except Exception as error:  # every tool raises its own
            self._is_open = False
            reason = printable(" ".join(str(error).split())) or type(error).__name__
            message = f"the tracker {self.name} failed, the run goes on without it: {reason}"
            self.run.log(message)
            logger.warning(message)

    @property
    def kept_id(self) -> str | None:
        """The id of the tool's run, which is kept in the run's folder; None if there is none."""
        return self._id_file.read_text(encoding="utf-8") if self._id_file.is_file() else None

    @kept_id.setter
    def kept_id(self, run_id: str) -> None:
        write_whole(self._id_file, run_id)

    @property
    def _id_file(self) -> Path:
        return self.run.path / f"{self.name}_run_id.txt"


def numbers(record: Record) -> dict[str, float]:
    """The finite measures of a record, by their names in the history."""
    row = record.flat()
    del row["round"]
    return {name: v for name, v in row.items() if v is not None and math.isfinite(v)}


def flattened(table: Table) -> Settings:
    """A configuration with dotted keys; values that are not numbers become text."""
    return {
        key: value if isinstance(value, str | int | float) else str(value)
        for key, value in dotted(table)
    }
