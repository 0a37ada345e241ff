"""How long to wait between two looks, and what is printed meanwhile."""

from __future__ import annotations

import time

SHORTEST = 0.1

AT_SERVER, AT_HOME = 3.0, 1.0
"""The most seconds between two looks at the server and on this machine, as in Flower's programs."""

FOR_REPLIES = 0.5
"""The most seconds between two looks of the server for replies."""


def pause(since: float, longest: float) -> float:
    """Return the seconds to wait before looking again, if nothing has come since this moment.

    A tenth of the time that has passed: waiting adds little to it, and a look costs some
    milliseconds of processor time on both sides.
    """
    return min(max(SHORTEST, (time.monotonic() - since) / 10), longest)


def say(event: str) -> None:
    """Print an event as a line with the time."""
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {event}", flush=True)
