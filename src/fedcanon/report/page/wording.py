"""How numbers and settings are written on a page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np


def setting(key: str, value: Any) -> str:
    """A setting in few words: the name of a thing speaks for itself."""
    own = key.rpartition(".")[2]
    return written(value) if own == "name" else f"{own} = {written(value)}"


def described(table: Mapping[str, Any]) -> str:
    """A table of the configuration: its name, then its settings."""
    own = [setting(key, value) for key, value in table.items() if key != "name"]
    return " · ".join([str(table["name"])] * ("name" in table) + [", ".join(own)] * bool(own))


def written(value: Any) -> str:
    """A value of the configuration."""
    if isinstance(value, Mapping):
        return described(value)
    if isinstance(value, list):
        return "; ".join(map(written, value)) or "none"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """The mean and the standard deviation (n − 1), which is 0 for one value or an infinite one."""
    if len(set(values)) == 1 or not all(map(math.isfinite, values)):
        return max(values), 0.0
    return float(np.mean(values)), float(np.std(values, ddof=1))


def byte_count(count: float) -> str:
    """A number of bytes, readable."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def duration(seconds: float) -> str:
    """A time in the unit that fits it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def different(lines: Iterable[str]) -> list[str]:
    """Every line once, in the order in which they first appear."""
    return list(dict.fromkeys(lines))
