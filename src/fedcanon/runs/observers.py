"""What may watch a run: progress bars, records on disk, checkpoints, trackers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fedcanon.runs.measures import Record

if TYPE_CHECKING:
    from fedcanon.runs.federation import Federation


class Observer:
    """Is told what happens in a run, in this order; every method may be left out.

    In a round the measures come first: when ``round`` is called, they have been recorded. An
    observer may add numbers to a record and end the run.
    """

    def begin(self, federation: Federation, rounds: int) -> None:
        """The run begins, or goes on, up to so many rounds."""

    def numbers(self) -> Mapping[str, float]:
        """Numbers of its own, by name, for the record that is being taken."""
        return {}

    def record(self, record: Record) -> None:
        """Measures have been taken."""

    def round(self, t: int) -> str | None:
        """``t`` rounds are done; the reason why the run should end here, or None to go on."""
        return None

    def end(self, stopped: str) -> None:
        """The run is over, and why; not called where it was interrupted or failed."""
