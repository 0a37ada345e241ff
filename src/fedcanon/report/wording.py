"""How settings and numbers are written, in the terminal and on pages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

LISTED = 8
"""Numbers of a list that are written one by one."""


def setting(key: str, value: Any) -> str:
    """A setting as "key = value", without the tables around the key; a name stands alone."""
    own = key.rpartition(".")[2]
    if own == "name":
        return written(value)
    return f"{own} = {'βK' if (own, value) == ('alpha', 'beta*K') else written(value)}"


def number(value: float, form: str) -> str:
    """A measure in this format; empty if it was not taken, as losses are not in private runs."""
    return "" if math.isnan(value) else format(value, form)


def described(table: Mapping[str, Any]) -> str:
    """A table of the configuration: "mcp: kappa = 0.001, gamma = 3"; each layer's own penalty."""
    if "layers" in table:
        return written(table["layers"])
    return ": ".join(filter(None, _name_and_settings(table)))


def written(value: Any) -> str:
    """A value of the configuration; numbers with six digits, the run's folder has all of them.

    A table inside a table is written as "inverse(start = 0.1, period = 40)" or, with the layers
    that it is for, as "l1(kappa = 0.1) on conv*.weight".
    """
    if isinstance(value, Mapping):
        name, settings = _name_and_settings(value)
        layers = f" on {value['match']}" if "match" in value else ""
        return f"{name}({settings}){layers}" if settings else f"{name}{layers}"
    if isinstance(value, list | tuple):
        if len(value) > LISTED and not isinstance(value[0], Mapping):
            return f"{len(value)} values"
        return "; ".join(map(written, value)) or "none"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _name_and_settings(table: Mapping[str, Any]) -> tuple[str, str]:
    name = str(table.get("name", table.get("schedule", "")))
    others = {k: v for k, v in table.items() if k not in ("name", "schedule", "match")}
    return name, ", ".join(setting(key, value) for key, value in others.items())


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """The mean and the standard deviation (n − 1), which is 0 for one value or an infinite one."""
    if len(set(values)) == 1 or not all(map(math.isfinite, values)):
        return max(values), 0.0
    with np.errstate(over="ignore"):
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
