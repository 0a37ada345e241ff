"""How large the experiments of the paper are made."""

from __future__ import annotations

from enum import StrEnum


class Scale(StrEnum):
    """``smoke`` takes a minute, ``laptop`` an hour on two cores; ``paper`` is as in the paper.

    Of ``accuracy`` every row takes hours on a laptop.
    """

    smoke = "smoke"
    laptop = "laptop"
    paper = "paper"
