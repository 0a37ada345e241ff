"""The contract of observers of a run, such as progress bars, checkpoints and trackers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fedcanon.runs.measures import Record

if TYPE_CHECKING:
    from fedcanon.runs.federation import Federation


class Observer:
    """Follows a run: its methods are called during training, and by default do nothing.

    An observer may add numbers to records and may stop the run.
    """

    def begin(self, federation: Federation, rounds: int) -> None:
        """Called before the first round, also of a resumed run; it will end after ``rounds``."""

    def numbers(self) -> Mapping[str, float]:
        """Return additional numbers by name for the record that is being taken."""
        return {}

    def record(self, record: Record) -> None:
        """Called when measures have been taken."""

    def event(self, message: str) -> None:
        """Called when something happens that a reader of the log should know."""

    def round(self, t: int) -> str | None:
        """Called after ``t`` rounds, and after ``record`` if measures were taken.

        Returns:
            The reason to stop the run here, or None to continue.
        """
        return None

    def end(self, stopped: str) -> None:
        """Called at the end with the reason; not called if the run is interrupted or fails."""
