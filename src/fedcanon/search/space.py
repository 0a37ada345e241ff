"""What a sweep varies: lists of values, ranges, and seeds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from fedcanon.errors import FedcanonError
from fedcanon.runs.config import parse_value

SEED = "seed"

# What lies between commas: quoted text, one level of brackets, or anything else.
_PIECE = re.compile(r"""(?:"[^"]*"|'[^']*'|\[[^\]]*\]|\{[^}]*\}|[^,"'\[\{])+""")


@dataclass(frozen=True)
class Choices:
    """A list of values, as they were typed; each is read as TOML."""

    texts: tuple[str, ...]


@dataclass(frozen=True)
class Range:
    """The numbers from ``low`` to ``high``; only whole ones if both are whole.

    With ``log`` they are drawn evenly by magnitude: as many between 1 and 10 as between 10 and 100.
    """

    low: float
    high: float
    log: bool = False


@dataclass(frozen=True)
class Space:
    """The settings that a sweep varies.

    Args:
        axes: For every key, such as "algorithm.beta", the values that it takes.
        seeds: The seeds with which every combination is run; if empty, the configuration's own.
    """

    axes: Mapping[str, Choices | Range]
    seeds: tuple[int, ...] = ()

    @property
    def ranges(self) -> list[str]:
        """The keys whose values come from a range."""
        return [key for key, axis in self.axes.items() if isinstance(axis, Range)]

    def grid(self) -> list[dict[str, Any]]:
        """Every combination of the listed values, the last key varying fastest."""
        listed = [axis.texts for axis in self.axes.values() if isinstance(axis, Choices)]
        return [dict(zip(self.axes, texts, strict=True)) for texts in product(*listed)]

    def covering(self) -> list[dict[str, Any]]:
        """A few combinations in which every listed value and both ends of every range occur."""
        values = {key: _ends(axis) for key, axis in self.axes.items()}
        first = {key: own[0] for key, own in values.items()}
        others = [{**first, key: value} for key, own in values.items() for value in own[1:]]
        return [first, *others]


def parse_space(options: Sequence[str]) -> Space:
    """Read options such as ``algorithm.beta=0.03,0.1`` or ``penalty.kappa=1e-4:1e-2:log``.

    The key ``seed`` gives the seeds with which every combination is run.

    Raises:
        FedcanonError: An option has another form, or a key or value is given twice.
    """
    axes: dict[str, Choices | Range] = {}
    for over in options:
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


def _ends(axis: Choices | Range) -> list[Any]:
    return list(axis.texts) if isinstance(axis, Choices) else [axis.low, axis.high]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
