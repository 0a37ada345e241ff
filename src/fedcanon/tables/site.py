"""What a site tells of its table: sums and counts, as far as its guards allow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcanon.errors import FedcanonError
from fedcanon.tables.recipe import Category, Number, plain

if TYPE_CHECKING:
    import pandas as pd

Answer = dict[str, Any]
"""Numbers by name. Those of several sites are added name by name."""


@dataclass(frozen=True)
class Guards:
    """What a site allows; it sets this itself, and the server cannot change it.

    Args:
        minimum_rows: Rows below which the site takes no part.
        minimum_count: Rows that a level of a category must have to be named.
        columns: The columns that may be used; None allows all.
        rows_for_each_parameter: Rows that the site must have for each parameter of a model.
    """

    minimum_rows: int = 10
    minimum_count: int = 5
    columns: frozenset[str] | None = None
    rows_for_each_parameter: float = 0.0


@dataclass(frozen=True)
class SiteTable:
    """The table of a site. ``answer`` is all that others learn of it.

    Args:
        name: The name of the site, for messages.
        table: Its rows.
        guards: What it allows.
    """

    name: str
    table: pd.DataFrame
    guards: Guards = field(default_factory=Guards)

    def answer(self, what: str, **arguments: Any) -> Answer:
        """Answer a question about the table.

        Args:
            what: "kinds", "counts", "levels", "below" or "moments"; see the methods.
            arguments: What the question is about.

        Raises:
            FedcanonError: A guard refuses, or a column is missing; the site and the reason are
                named.
        """
        rows = len(self.table)
        if rows < self.guards.minimum_rows:
            raise self._refused(f"it has {rows} rows, fewer than its minimum_rows")
        questions: Mapping[str, Callable[..., Answer]] = {
            "kinds": self._kinds,
            "counts": self._counts,
            "levels": self._levels,
            "below": self._below,
            "moments": self._moments,
        }
        return questions[what](**arguments)

    def numbers_of(self, column: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return a column of numbers without missing values, for use at the site itself.

        Raises:
            FedcanonError: A value is missing, or is no number.
        """
        values = self._column(column)
        if values.isna().any():
            raise FedcanonError(
                f"the column '{column}' of the site {self.name} lacks {int(values.isna().sum())} "
                "values: leave these rows out."
            )
        return self._numbers(column)

    def _refused(self, why: str) -> FedcanonError:
        return FedcanonError(f"the site {self.name} refuses: {why}.")

    def _column(self, name: str) -> pd.Series:
        if self.guards.columns is not None and name not in self.guards.columns:
            raise self._refused(f"the column '{name}' may not be used")
        if name not in self.table.columns:
            raise FedcanonError(
                f"the table of the site {self.name} has no column '{name}': it has "
                f"{', '.join(map(str, self.table.columns))}."
            )
        return self.table[name]

    def _numbers(self, column: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The values of a column that are not missing."""
        import pandas as pd

        values = self._column(column)
        found = pd.to_numeric(values, errors="coerce")
        odd = values.notna() & found.isna()
        if odd.any():
            raise FedcanonError(
                f"the column '{column}' of the site {self.name} has the value "
                f"{values[odd].iloc[0]!r:.40}, which is no number: mend it, or name the column "
                "among the categories."
            )
        return found.dropna().to_numpy("float64")

    def _kinds(self, columns: Sequence[str]) -> Answer:
        """Tell which of the columns hold numbers (1) and which texts (0)."""
        from pandas.api import types

        kinds = {}
        for name in columns:
            values = self._column(name)
            is_number = types.is_numeric_dtype(values) and not types.is_bool_dtype(values)
            kinds[name] = int(is_number)
        return kinds

    def _counts(self, columns: Sequence[str]) -> Answer:
        """Count the rows, and the values of each column that are not missing."""
        present = {name: int(self._column(name).notna().sum()) for name in columns}
        return {"rows": len(self.table), **{f"present/{k}": v for k, v in present.items()}}

    def _levels(self, column: str) -> Answer:
        """Count the levels of a category; those below ``minimum_count`` are not named."""
        values = self._column(column).dropna()
        counts = values.map(str).value_counts()
        named = counts[counts >= self.guards.minimum_count]
        rare = int(counts.sum() - named.sum())
        return {**{f"level/{k}": int(v) for k, v in named.items()}, "rare": rare}

    def _below(self, column: str, thresholds: Sequence[float]) -> Answer:
        """Count the values below or at each threshold."""
        values = np.sort(self._numbers(column))
        counts = np.searchsorted(values, thresholds, side="right")
        return {"counts": counts.astype(np.int64)}

    def _moments(self, parts: Sequence[Number | Category], centres: Sequence[float]) -> Answer:
        """Sum the prepared columns less their centres, and the squares of that."""
        rows = plain(tuple(parts), self.table) - np.asarray(centres)
        return {"rows": len(rows), "sums": rows.sum(0), "squares": (rows**2).sum(0)}


def added(answers: Sequence[Answer]) -> Answer:
    """Add answers name by name; a name that an answer does not have counts as 0."""
    total: Answer = {}
    for answer in answers:
        for name, value in answer.items():
            total[name] = total[name] + value if name in total else value
    return total
