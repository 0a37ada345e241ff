"""How columns of a table become columns of numbers, the same at all sites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]

OTHER = "other"
"""The level of all values of a category that are too rare to have their own."""


@dataclass(frozen=True)
class Number:
    """A column of numbers.

    Args:
        name: The name of the column in the tables.
        fill: What stands for a missing value.
        log: Whether the logarithm of the values is taken.
        knots: The knots of a spline; none is a straight line.
        indicator: Whether there is another column that says which values are missing.
    """

    name: str
    fill: float
    log: bool = False
    knots: tuple[float, ...] = ()
    indicator: bool = False

    @property
    def columns(self) -> list[str]:
        """The names of the prepared columns."""
        shown = f"log({self.name})" if self.log else self.name
        curve = [f"{shown} spline {k}" for k in range(1, len(self.knots) - 1)]
        return [shown, *curve, *([f"{self.name} missing"] if self.indicator else [])]

    def prepared(self, values: pd.Series) -> Array:
        """Return the prepared columns of some values, before they are centred and scaled."""
        raw = values.to_numpy("float64", na_value=np.nan)
        filled = np.where(np.isnan(raw), self.fill, raw)
        line = np.log(filled) if self.log else filled
        columns = [line, *spline(line, self.knots)]
        if self.indicator:
            columns.append(np.isnan(raw).astype("float64"))
        return np.stack(columns, axis=1)


@dataclass(frozen=True)
class Category:
    """A column of categories: a column of zeros and ones for every level but the reference.

    Args:
        name: The name of the column in the tables.
        reference: The level that all others are compared with.
        levels: The other levels; values that are none of them are ``OTHER`` if that is a level.
        fill: The level that stands for a missing value.
    """

    name: str
    reference: str
    levels: tuple[str, ...]
    fill: str

    @property
    def columns(self) -> list[str]:
        """The names of the prepared columns."""
        return [f"{self.name} = {level}" for level in self.levels]

    def prepared(self, values: pd.Series) -> Array:
        """Return the prepared columns of some values.

        A value that no site had when the recipe was made is ``OTHER``, or the reference if there is
        no such level.
        """
        known = {self.reference, *self.levels}
        unknown = OTHER if OTHER in known else self.reference
        shown = np.where(values.isna(), self.fill, texts(values))
        found = np.array([text if text in known else unknown for text in shown], dtype=object)
        return np.stack([found == level for level in self.levels], axis=1).astype("float64")


@dataclass(frozen=True)
class Recipe:
    """What is done to the columns of every site's table.

    Args:
        parts: The columns, in the order of the prepared ones.
        means: The mean of every prepared column, over all sites.
        scales: The standard deviation of every prepared column, over all sites.
    """

    parts: tuple[Number | Category, ...]
    means: tuple[float, ...]
    scales: tuple[float, ...]

    @property
    def columns(self) -> list[str]:
        """The names of the prepared columns."""
        return [name for part in self.parts for name in part.columns]

    @property
    def variables(self) -> list[str]:
        """The column of the tables from which every prepared column comes."""
        return [part.name for part in self.parts for _ in part.columns]

    def prepared(self, table: pd.DataFrame) -> Array:
        """Return the prepared columns of a table, with the mean 0 and the deviation 1 over all."""
        return self.standardised(plain(self.parts, table))

    def standardised(self, columns: Array) -> Array:
        """Return prepared columns centred and scaled."""
        found: Array = (columns - np.array(self.means)) / np.array(self.scales)
        return found


def plain(parts: Sequence[Number | Category], table: pd.DataFrame) -> Array:
    """Return the prepared columns before they are centred and scaled."""
    columns = [part.prepared(table[part.name]) for part in parts]
    return np.concatenate(columns, axis=1) if columns else np.empty((len(table), 0))


def texts(values: pd.Series) -> pd.Series:
    """Return values as texts that do not depend on the type of the column: 1 and 1.0 are "1"."""
    return values.astype(object).map(text_of)


def text_of(value: object) -> str:
    """Return a value as a text: 1 and 1.0 are "1"."""
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if whole else str(value)  # type: ignore[call-overload]


def spline(values: Array, knots: tuple[float, ...]) -> list[Array]:
    """Return the curved columns of a natural cubic spline with these knots; none without knots.

    With knots t_1 < … < t_k there are k − 2 columns, linear beyond the outer knots (Harrell's
    restricted cubic splines, scaled by (t_k − t_1)²).
    """
    if not knots:
        return []
    *inner, before, last = knots
    first, width = knots[0], last - before

    def cubed(knot: float) -> Array:
        positive: Array = np.maximum(values - knot, 0) ** 3
        return positive

    return [
        (
            cubed(knot)
            - cubed(before) * (last - knot) / width
            + cubed(last) * (before - knot) / width
        )
        / (last - first) ** 2
        for knot in inner
    ]
