"""What may watch a run: progress bars, records on disk, checkpoints, trackers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcanon.runs.measures import Record

if TYPE_CHECKING:
    from fedcanon.runs.federation import Federation


class Observer:
    """Is told what happens in a run, in this order; every method may be left out.

    In a round the measures come first: when ``round`` is called, they have been recorded.
    """

    def begin(self, federation: Federation, rounds: int) -> None:
        """The run begins, or goes on, up to so many rounds."""

    def record(self, record: Record) -> None:
        """Measures have been taken."""

    def round(self, t: int) -> None:
        """``t`` rounds are done."""

    def end(self, stopped: str) -> None:
        """The run is over, and why; not called where it was interrupted or failed."""
