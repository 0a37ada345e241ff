"""Waiting for what happens, however busy the machine is; in the end a test has its own limit."""

import time

PATIENCE = 600
"""Seconds, for functions that want a number."""


def until(happens, alive=lambda: True):
    """What ``happens`` gives as soon as it is true; ``alive`` must hold until then."""
    while not (found := happens()):
        assert alive(), "it ended too early"
        time.sleep(0.02)
    return found
