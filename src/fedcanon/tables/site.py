"""What a site tells of its table: sums and counts, as far as its guards allow."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedcanon.errors import FedcanonError
from fedcanon.tables.recipe import Category, Number, plain, texts

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]

Answer = dict[str, Any]
"""Numbers and arrays by name. Those of several sites are added name by name."""

HARMLESS = "kinds"
"""The request that a site answers for itself, whatever its ``minimum_sites``: types of columns."""


@dataclass(frozen=True)
class Guards:
    """What a site allows; it sets this itself, and the server cannot change it.

    Args:
        minimum_rows: Rows that the site, and any part of its rows that is asked about, must have.
        minimum_count: Rows that a level of a category must have to be named.
        minimum_sites: Sites over which an answer must be added up. Above 1 there are no results for
            this site alone.
        columns: The columns that may be used; None allows all.
        parameters_per_row: Parameters that a model may have, as a share of the site's rows.
        penalised: Whether models with a penalty may have more.
    """

    minimum_rows: int = 5
    minimum_count: int = 5
    minimum_sites: int = 1
    columns: frozenset[str] | None = None
    parameters_per_row: float = 0.33
    penalised: bool = True


NO_GUARDS = Guards(minimum_rows=1, minimum_count=1, parameters_per_row=math.inf)
"""For tables that are all in the same hands already."""


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

    @property
    def requests(self) -> Mapping[str, Callable[..., Answer]]:
        """What the site can be asked, by name."""
        return {
            "kinds": self.kinds,
            "counts": self.counts,
            "levels": self.levels,
            "others": self.others,
            "below": self.below,
            "moments": self.moments,
        }

    def answer(self, what: str, sites: int, arguments: Mapping[str, Any]) -> Answer:
        """Answer a request about the table.

        Args:
            what: The name of the request; see ``requests``.
            sites: Over how many sites the answers are added up.
            arguments: The arguments of the request.

        Raises:
            FedcanonError: A guard refuses, or a column is missing; the site and the reason are
                named.
        """
        self._require_rows(len(self.table))
        if what != HARMLESS:
            self.require_sites(sites)
        return self.requests[what](**arguments)

    def _require_rows(self, rows: int) -> None:
        if rows < self.guards.minimum_rows:
            raise self.refused(
                f"it has {rows} rows for this, fewer than its minimum_rows = "
                f"{self.guards.minimum_rows}"
            )

    def require_sites(self, sites: int) -> None:
        """Refuse an answer that is added up over too few sites."""
        if sites < self.guards.minimum_sites:
            raise self.refused(
                f"it answers only in sums over at least minimum_sites = {self.guards.minimum_sites}"
                f" sites, not over {sites}"
            )

    def refused(self, why: str) -> FedcanonError:
        """Return the error that says which guard refuses a request."""
        return FedcanonError(f"the site {self.name} refuses: {why}.")

    def part(self, rows: NDArray[np.bool_]) -> pd.DataFrame:
        """Return some of the rows; there must be enough of them and of all others, or none.

        Of few others one would learn by the difference between an answer and that for all rows.
        """
        for count in (int(rows.sum()), int((~rows).sum())):
            if count:
                self._require_rows(count)
        return self.table[rows]

    def column(self, name: str) -> pd.Series:
        """Return a column, if it may be used.

        Raises:
            FedcanonError: It may not, or there is none of this name.
        """
        allowed = self.guards.columns
        if allowed is not None and name not in allowed:
            raise self.refused(f"the column '{name}' is none of the columns that may be used")
        if name not in self.table.columns:
            shown = [c for c in map(str, self.table.columns) if allowed is None or c in allowed]
            raise FedcanonError(
                f"the table of the site {self.name} has no column '{name}': it has "
                f"{', '.join(shown)}."
            )
        return self.table[name]

    def numbers(self, column: str) -> pd.Series:
        """Return a column of numbers, some of which may be missing.

        Raises:
            FedcanonError: A value is no number.
        """
        import pandas as pd

        values = self.column(column)
        found = pd.to_numeric(values, errors="coerce").astype("float64")
        odd = (values.notna() & found.isna()) | np.isinf(found)
        if odd.any():
            # Not the value itself: messages may go to others.
            raise FedcanonError(
                f"the column '{column}' of the site {self.name} has a value that is no number, in "
                f"row {values.index[odd][0]}: mend it, or name the column among the categories."
            )
        return found

    def complete(self, column: str) -> Array:
        """Return a column of numbers of which none is missing.

        Raises:
            FedcanonError: A value is missing, or is no number.
        """
        values = self.numbers(column)
        self._require_complete(column, values)
        return values.to_numpy()

    def complete_texts(self, column: str) -> NDArray[np.object_]:
        """Return a column of texts of which none is missing."""
        values = self.column(column)
        self._require_complete(column, values)
        return texts(values).to_numpy(dtype=object)

    def _require_complete(self, column: str, values: pd.Series) -> None:
        if values.isna().any():
            raise FedcanonError(
                f"the column '{column}' of the site {self.name} lacks {int(values.isna().sum())} "
                "values: leave these rows out."
            )

    def plain(self, parts: Sequence[Number | Category]) -> Array:
        """Return the prepared columns before they are centred and scaled, for the site itself.

        Raises:
            FedcanonError: A column is missing, a value is no number, or has no logarithm.
        """
        for part in parts:
            if not isinstance(part, Number):
                self.column(part.name)
            elif (self.numbers(part.name) <= 0).any() and part.log:
                raise FedcanonError(
                    f"the column '{part.name}' of the site {self.name} has values up to 0, which "
                    "have no logarithm."
                )
        return plain(parts, self.table)

    def kinds(self, columns: Sequence[str]) -> Answer:
        """Tell which of the columns hold numbers (1), texts (0), or nothing at all (−1)."""
        from pandas.api import types

        kinds = {}
        for name in columns:
            values = self.column(name)
            is_number = types.is_numeric_dtype(values) and not types.is_bool_dtype(values)
            kinds[name] = -1 if values.isna().all() else int(is_number)
        return kinds

    def counts(self, columns: Sequence[str]) -> Answer:
        """Count the rows, and the values of each column that are not missing."""
        present = [int(self.column(name).notna().sum()) for name in columns]
        return {"rows": len(self.table), "present": np.array(present, dtype=np.float64)}

    def levels(self, columns: Sequence[str]) -> Answer:
        """Count the levels of categories; those below ``minimum_count`` are not named."""
        told: Answer = {"rare": np.zeros(len(columns))}
        for k, name in enumerate(columns):
            counts = texts(self.column(name).dropna()).value_counts()
            named = counts[counts >= self.guards.minimum_count]
            told |= {f"{k}/{level}": int(n) for level, n in named.items()}
            told["rare"][k] = counts.sum() - named.sum()
        return told

    def others(self, columns: Sequence[str], levels: Sequence[Sequence[str]]) -> Answer:
        """Count the values of categories that are none of these levels."""
        counts = [
            int((~texts(self.column(name).dropna()).isin(list(own))).sum())
            for name, own in zip(columns, levels, strict=True)
        ]
        return {"counts": np.array(counts, dtype=np.float64)}

    def below(self, columns: Sequence[str], thresholds: Sequence[Sequence[float]]) -> Answer:
        """Count the values of columns below or at thresholds, a row of them for each column."""
        counts = [
            np.searchsorted(np.sort(self.numbers(name).dropna()), own, side="right")
            for name, own in zip(columns, thresholds, strict=True)
        ]
        return {"counts": np.array(counts, dtype=np.float64)}

    def moments(
        self,
        parts: Sequence[Number | Category],
        centres: Sequence[float],
        weights: str | None = None,
    ) -> Answer:
        """Sum the prepared columns less their centres, and the squares of that.

        Args:
            parts: The columns.
            centres: What is subtracted from each prepared column.
            weights: The column by which rows are multiplied and counted; None counts all as 1.
        """
        rows = self.plain(parts) - np.asarray(centres)
        own = np.ones(len(rows)) if weights is None else self.complete(weights)
        self.part(own != 0)
        weighted = own[:, None] * rows
        return {"rows": own.sum(), "sums": weighted.sum(0), "squares": (weighted * rows).sum(0)}
