"""What curves are drawn against."""

from __future__ import annotations

from enum import StrEnum


class Against(StrEnum):
    """The quantity on the horizontal axis."""

    rounds = "rounds"
    bytes = "bytes"
    seconds = "seconds"
