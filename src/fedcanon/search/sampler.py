"""The ways to choose what a sweep tries next."""

from __future__ import annotations

from enum import StrEnum


class Sampler(StrEnum):
    """How the next combination is chosen: in order, at random, or by Optuna's TPE."""

    grid = "grid"
    random = "random"
    tpe = "tpe"
