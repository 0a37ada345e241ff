"""What a sweep varies: lists of values, ranges, and seeds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import Any

from fedcanon.errors import FedcanonError
from fedcanon.runs.config import parse_value

SEED = "seed"

# What lies between commas: quoted text, one level of brackets, or anything else.
_PIECE = re.compile(r"""(?:"[^"]*"|'[^']*'|\[[^\]]*\]|\{[^}]*\}|[^,"'\[\{])+""")


class Sampler(StrEnum):
    """How the next combination is chosen."""

    grid = "grid"
    random = "random"
    tpe = "tpe"


@dataclass(frozen=True)
class Choices:
    """Values as they were typed; a run reads each as TOML."""

    texts: tuple[str, ...]


@dataclass(frozen=True)
class Range:
    """All numbers from ``low`` to ``high``, whole ones if both are; ``log`` for magnitudes."""

    low: float
    high: float
    log: bool = False


@dataclass(frozen=True)
class Space:
    """The keys that are varied, and the seeds over which every trial is repeated.

    Without ``seeds`` the configuration's own seed is the only one.
    """

    axes: Mapping[str, Choices | Range]
    seeds: tuple[int, ...] = ()

    @property
    def ranges(self) -> list[str]:
        """The keys that take any value of a range."""
        return [key for key, axis in self.axes.items() if isinstance(axis, Range)]

    def grid(self) -> list[dict[str, Any]]:
        """Every combination of the listed values, the last key varying fastest."""
        listed = [axis.texts for axis in self.axes.values() if isinstance(axis, Choices)]
        return [dict(zip(self.axes, texts, strict=True)) for texts in product(*listed)]

    def samples(self) -> list[dict[str, Any]]:
        """A combination in which each key has its first value, then one for each other value."""
        values = {key: _shown(axis) for key, axis in self.axes.items()}
        first = {key: own[0] for key, own in values.items()}
        others = [{**first, key: value} for key, own in values.items() for value in own[1:]]
        return [first, *others]


def parse_space(overs: Sequence[str]) -> Space:
    """Read ``key=value,value`` and ``key=low:high[:log]``; the key ``seed`` lists repetitions."""
    axes: dict[str, Choices | Range] = {}
    for over in overs:
        key, equals, text = over.partition("=")
        if not (key and equals and text):
            raise FedcanonError(
                "--over takes key=value,value or key=low:high[:log], such as "
                f"algorithm.beta=0.03,0.1, not '{over}'."
            )
        if key in axes:
            raise FedcanonError(f"--over {key} is given twice: put all its values into one.")
        axes[key] = _range(over, text) or _choices(over, text)
    seeds = axes.pop(SEED, None)
    return Space(axes, () if seeds is None else _seeds(seeds))


def _range(over: str, text: str) -> Range | None:
    low, high, *rest = [parse_value(part) for part in text.split(":")] + [None, None]
    if not (_is_number(low) and _is_number(high)):
        return None
    kind = rest[0]
    if kind not in (None, "log") or len(rest) > 3:
        raise FedcanonError(f"'{over}': write a range as low:high or low:high:log.")
    if not low < high:
        raise FedcanonError(f"'{over}': {low} is not below {high}.")
    if kind == "log" and low <= 0:
        raise FedcanonError(f"'{over}': a range of magnitudes (log) starts above 0.")
    return Range(low, high, kind == "log")


def _choices(over: str, text: str) -> Choices:
    pieces = [piece.strip() for piece in _PIECE.findall(text)]
    if len(pieces) != len(_PIECE.sub("", text)) + 1 or not all(pieces):
        raise FedcanonError(f"'{over}': separate values by single commas.")
    values = [parse_value(piece) for piece in pieces]
    for piece, value in zip(pieces, values, strict=True):
        if values.count(value) > 1:
            raise FedcanonError(f"'{over}': the value {piece} is given twice.")
    return Choices(tuple(pieces))


def _seeds(axis: Choices | Range) -> tuple[int, ...]:
    seeds = [parse_value(text) for text in axis.texts] if isinstance(axis, Choices) else []
    if not (seeds and all(type(seed) is int and seed >= 0 for seed in seeds)):
        raise FedcanonError("--over seed takes a list of whole numbers, such as seed=0,1,2.")
    return tuple(seeds)


def _shown(axis: Choices | Range) -> list[Any]:
    return list(axis.texts) if isinstance(axis, Choices) else [axis.low, axis.high]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
