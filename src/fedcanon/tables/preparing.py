"""Makes a recipe from what sites tell: sums and counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from fedcanon.errors import FedcanonError
from fedcanon.tables.recipe import OTHER, Category, Number, Recipe
from fedcanon.tables.site import Answer, SiteTable, added

Missing = Literal["mean", "median", "most_frequent"] | float | str


class Sites(Protocol):
    """The sites, wherever they are."""

    def each(self, what: str, **arguments: Any) -> dict[str, Answer]:
        """Ask every site, and return the answers by the names of the sites."""
        ...

    def total(self, what: str, **arguments: Any) -> Answer:
        """Ask every site, and return the sum of the answers."""
        ...


@dataclass(frozen=True)
class LocalSites:
    """Sites whose tables are in this process."""

    tables: Sequence[SiteTable]

    def each(self, what: str, **arguments: Any) -> dict[str, Answer]:
        return {table.name: table.answer(what, **arguments) for table in self.tables}

    def total(self, what: str, **arguments: Any) -> Answer:
        return added([table.answer(what, **arguments) for table in self.tables])


@dataclass(frozen=True)
class Plan:
    """What the user wants to be done to columns.

    Args:
        columns: The columns to use.
        categories: Those of them that are categories although they hold numbers.
        missing: What stands for missing values, by column: "mean", "median" or a number for
            numbers; "most_frequent" or a level for categories. The default is "mean" and
            "most_frequent".
        indicators: The columns that get another column, which says what is missing.
        logs: The columns of which the logarithm is taken.
        splines: The number of knots of columns that become splines, at least 3.
        minimum_count: Rows that a level must have over all sites; others become "other".
    """

    columns: Sequence[str]
    categories: Sequence[str] = ()
    missing: Mapping[str, Missing] = field(default_factory=dict)
    indicators: Sequence[str] = ()
    logs: Sequence[str] = ()
    splines: Mapping[str, int] = field(default_factory=dict)
    minimum_count: int = 10


KNOTS = {
    3: (0.1, 0.5, 0.9),
    4: (0.05, 0.35, 0.65, 0.95),
    5: (0.05, 0.275, 0.5, 0.725, 0.95),
    6: (0.05, 0.23, 0.41, 0.59, 0.77, 0.95),
    7: (0.025, 0.1833, 0.3417, 0.5, 0.6583, 0.8167, 0.975),
}
"""Harrell's quantiles for knots, by their number."""


def prepare(sites: Sites, plan: Plan) -> Recipe:
    """Make the recipe that prepares all tables alike.

    Means, deviations and levels are those of the pooled table, computed from the sites' sums and
    counts; medians and quantiles are exact, found by counting values below thresholds.

    Raises:
        FedcanonError: A column is missing, holds numbers at one site and texts at another, or
            cannot be prepared as planned.
    """
    _check(plan)
    kinds = _kinds(sites, plan)
    counts = sites.total("counts", columns=list(plan.columns))
    parts: list[Number | Category] = []
    for name in plan.columns:
        if not counts[f"present/{name}"]:
            raise FedcanonError(f"the column '{name}' has no value at any site: leave it out.")
        parts.append(_number(sites, plan, name) if kinds[name] else _category(sites, plan, name))
    return _standardised(sites, tuple(parts))


def _check(plan: Plan) -> None:
    for option in ("categories", "missing", "indicators", "logs", "splines"):
        for name in getattr(plan, option):
            if name not in plan.columns:
                raise FedcanonError(f"{option} names '{name}', which is none of the columns.")
    for name, knots in plan.splines.items():
        if knots not in KNOTS:
            raise FedcanonError(f"the spline of '{name}' needs 3 to 7 knots, not {knots}.")


def _kinds(sites: Sites, plan: Plan) -> dict[str, bool]:
    """Tell which columns hold numbers, at all sites."""
    told = sites.each("kinds", columns=list(plan.columns))
    kinds = {}
    for name in plan.columns:
        texts = [site for site, answer in told.items() if not answer[name]]
        if name in plan.categories:
            kinds[name] = False
        elif texts and len(texts) < len(told):
            numbers = min(site for site in told if site not in texts)
            raise FedcanonError(
                f"the column '{name}' holds texts at the site {min(texts)} and numbers at the site "
                f"{numbers}: make them alike, or name it among the categories."
            )
        else:
            kinds[name] = not texts
    return kinds


def _number(sites: Sites, plan: Plan, name: str) -> Number:
    how, log = plan.missing.get(name, "mean"), name in plan.logs
    if isinstance(how, str) and how not in ("mean", "median"):
        raise FedcanonError(
            f'missing values of the numbers \'{name}\' are filled with "mean", "median" or a '
            f'number, not with "{how}".'
        )
    if how == "median":
        [fill] = quantiles(sites, name, [0.5])
    elif how == "mean":
        nothing = Number(name, 0.0, indicator=True)  # missing values count as 0, and are counted
        told = sites.total("moments", parts=[nothing], centres=[0.0, 0.0])
        fill = float(told["sums"][0] / (told["rows"] - told["sums"][1]))
    else:
        fill = float(how)
    if log:
        [lowest] = quantiles(sites, name, [0.0])
        if min(lowest, fill) <= 0:
            raise FedcanonError(f"the column '{name}' has values up to 0: it has no logarithm.")
    knots: tuple[float, ...] = ()
    if name in plan.splines:
        found = quantiles(sites, name, KNOTS[plan.splines[name]])
        knots = tuple(float(np.log(k)) if log else k for k in found)
        if len(set(knots)) < len(knots):
            raise FedcanonError(
                f"the column '{name}' has too few different values for a spline with "
                f"{len(knots)} knots: use fewer, or a straight line."
            )
    return Number(name, fill, log, knots, indicator=name in plan.indicators)


def _category(sites: Sites, plan: Plan, name: str) -> Category:
    told = sites.total("levels", column=name)
    counts = {k.removeprefix("level/"): v for k, v in told.items() if k.startswith("level/")}
    named = {level: n for level, n in counts.items() if n >= plan.minimum_count and level != OTHER}
    rest = told["rare"] + sum(n for level, n in counts.items() if level not in named)
    if not named:
        raise FedcanonError(
            f"no level of '{name}' has {plan.minimum_count} rows: leave the column out, or lower "
            "minimum_count."
        )
    reference = max(sorted(named), key=lambda level: named[level])
    levels = [level for level in sorted(named) if level != reference] + ([OTHER] if rest else [])
    if not levels:
        raise FedcanonError(f"the column '{name}' has only the level '{reference}': leave it out.")
    how = str(plan.missing.get(name, "most_frequent"))
    fill = reference if how == "most_frequent" else how
    if fill not in (reference, *levels):
        raise FedcanonError(f"'{fill}' is no level of '{name}' to stand for missing values.")
    return Category(name, reference, tuple(levels), fill)


def _standardised(sites: Sites, parts: tuple[Number | Category, ...]) -> Recipe:
    """Find means and deviations; the second from the first, because sums of squares cancel."""
    width = sum(len(part.columns) for part in parts)
    first = sites.total("moments", parts=list(parts), centres=[0.0] * width)
    means = first["sums"] / first["rows"]
    second = sites.total("moments", parts=list(parts), centres=means.tolist())
    means = means + second["sums"] / second["rows"]
    scales = np.sqrt(second["squares"] / second["rows"] - (second["sums"] / second["rows"]) ** 2)
    names = [name for part in parts for name in part.columns]
    for constant in np.flatnonzero(scales <= 1e-12 * np.maximum(1, np.abs(means)))[:1]:
        raise FedcanonError(f"'{names[constant]}' is the same in all rows: leave its column out.")
    return Recipe(parts, means, scales)


def quantiles(sites: Sites, column: str, shares: Sequence[float]) -> list[float]:
    """Return quantiles of a column over all sites, as NumPy computes them of the pooled values.

    The k-th smallest value is found exactly, by counts of values below thresholds: floating-point
    numbers are numbered in their order, and each question divides what is left into 256 parts.
    """
    count = int(sites.total("counts", columns=[column])[f"present/{column}"])
    places = [share * (count - 1) for share in shares]
    ranks = sorted({int(p) for p in places} | {min(int(p) + 1, count - 1) for p in places})
    values = {rank: _smallest(sites, column, rank) for rank in ranks}
    found = []
    for place in places:
        low, high = values[int(place)], values[min(int(place) + 1, count - 1)]
        found.append(low + (high - low) * (place - int(place)))
    return found


def _smallest(sites: Sites, column: str, rank: int) -> float:
    """Return the value at a place of all sites' values in increasing order, counted from 0."""
    low, high = _number_of(-np.inf), _number_of(np.inf)  # the value is above low, at most high
    while high - low > 1:
        steps = [low + (high - low) * k // 256 for k in range(1, 257)]
        counts = sites.total("below", column=column, thresholds=[_float_of(s) for s in steps])
        place = int(np.searchsorted(counts["counts"], rank, side="right"))
        low, high = (steps[place - 1] if place else low), steps[place]
    return _float_of(high)


def _number_of(value: float) -> int:
    """Return the number of a floating-point number in the order of all of them."""
    bits = int(np.float64(value).view(np.int64))
    return bits if bits >= 0 else -(bits & (2**63 - 1))


def _float_of(number: int) -> float:
    """Return the floating-point number with a number in the order of all of them."""
    size = float(np.int64(abs(number)).view(np.float64))
    return size if number >= 0 else -size
