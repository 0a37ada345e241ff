"""How large an experiment is run."""

from __future__ import annotations

from enum import StrEnum


class Scale(StrEnum):
    """``smoke`` takes a minute, ``laptop`` an hour on two cores, ``paper`` has its own settings."""

    smoke = "smoke"
    laptop = "laptop"
    paper = "paper"
