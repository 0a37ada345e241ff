"""Makes a recipe from what sites tell: sums and counts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fedcanon.errors import FedcanonError
from fedcanon.tables.quantiles import quantiles
from fedcanon.tables.recipe import OTHER, Category, Number, Recipe, text_of
from fedcanon.tables.site import Answer
from fedcanon.tables.sites import Sites, each, required, total

Missing = Literal["mean", "median", "most_frequent"] | float | str


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


def prepare(sites: Sites, plan: Plan, weights: str | None = None) -> Recipe:
    """Make the recipe that prepares all tables alike.

    Means, deviations and levels are those of the pooled table, computed from the sites' sums and
    counts; medians and quantiles are exact, found by counting values below thresholds.

    Args:
        sites: The sites.
        plan: What is to be done.
        weights: The column with the weights of rows, which means and deviations take into account;
            counts, medians and quantiles do not.

    Raises:
        FedcanonError: A column is missing, holds numbers at one site and texts at another, or
            cannot be prepared as planned.
    """
    _check(plan)
    numbers = _numbers(sites, plan)
    texts = [name for name in plan.columns if name not in numbers]
    parts: dict[str, Number | Category] = {}
    parts |= _number_parts(sites, plan, numbers, weights)
    parts |= _category_parts(sites, plan, texts)
    return _standardised(sites, tuple(parts[name] for name in plan.columns), weights)


def _check(plan: Plan) -> None:
    if len(set(plan.columns)) < len(plan.columns):
        raise FedcanonError("a column is named twice among the columns.")
    for option in ("categories", "missing", "indicators", "logs", "splines"):
        for name in getattr(plan, option):
            if name not in plan.columns:
                raise FedcanonError(f"{option} names '{name}', which is none of the columns.")
    for name, knots in plan.splines.items():
        if knots not in KNOTS:
            raise FedcanonError(f"the spline of '{name}' needs 3 to 7 knots, not {knots}.")


def _numbers(sites: Sites, plan: Plan) -> list[str]:
    """Return the columns that hold numbers, at all sites."""
    columns = list(plan.columns)
    told = required(each(sites, "kinds", columns=columns))
    present = total(sites, "counts", columns=columns)["present"]
    for name, count in zip(columns, present, strict=True):
        if not count:
            raise FedcanonError(f"the column '{name}' has no value at any site: leave it out.")
    found = []
    for name in columns:
        texts = [site for site, answer in told.items() if answer[name] == 0]
        numbers = [site for site, answer in told.items() if answer[name] > 0]
        if texts and numbers and name not in plan.categories:
            raise FedcanonError(
                f"the column '{name}' holds texts at the site {min(texts)} and numbers at the site "
                f"{min(numbers)}: make them alike, or name it among the categories."
            )
        if not texts and name not in plan.categories:
            found.append(name)
    for option in ("logs", "splines", "indicators"):
        for name in getattr(plan, option):
            if name not in found:
                raise FedcanonError(f"{option} names '{name}', which does not hold numbers.")
    return found


def _number_parts(
    sites: Sites, plan: Plan, names: Sequence[str], weights: str | None
) -> dict[str, Number]:
    how = {name: plan.missing.get(name, "mean") for name in names}
    for name, way in how.items():
        if isinstance(way, str) and way not in ("mean", "median"):
            raise FedcanonError(
                f'missing values of the numbers \'{name}\' are filled with "mean", "median" or a '
                f'number, not with "{way}".'
            )
    wanted = {name: [0.5] for name, way in how.items() if way == "median"}
    wanted |= {name: [*wanted.get(name, ()), *KNOTS[n]] for name, n in plan.splines.items()}
    found = quantiles(sites, wanted)
    fills = _means(sites, [name for name, way in how.items() if way == "mean"], weights)
    fills |= {name: found[name].pop(0) for name, way in how.items() if way == "median"}
    fills |= {name: float(way) for name, way in how.items() if not isinstance(way, str)}
    _require_logs(sites, plan.logs, fills)
    parts = {}
    for name in names:
        log = name in plan.logs
        knots = tuple(float(np.log(k)) if log else k for k in found.get(name, ()))
        if len(set(knots)) < len(knots):
            raise FedcanonError(
                f"the column '{name}' has too few different values for a spline with "
                f"{len(knots)} knots: use fewer, or a straight line."
            )
        parts[name] = Number(name, fills[name], log, knots, indicator=name in plan.indicators)
    return parts


def _means(sites: Sites, names: Sequence[str], weights: str | None) -> dict[str, float]:
    """Return the means of the values that are not missing."""
    if not names:
        return {}
    # Missing values count as 0 at first, and are counted. Then sums are taken around the mean,
    # because sums far from 0 lose digits.
    parts = [Number(name, 0.0, indicator=True) for name in names]
    told = total(sites, "moments", parts=parts, centres=[0.0] * 2 * len(names), weights=weights)
    sums, missing = told["sums"][0::2], told["sums"][1::2]
    means = sums / (told["rows"] - missing)
    filled = [Number(name, float(mean)) for name, mean in zip(names, means, strict=True)]
    told = total(sites, "moments", parts=filled, centres=means.tolist(), weights=weights)
    means = means + told["sums"] / (told["rows"] - missing)
    return dict(zip(names, means.tolist(), strict=True))


def _require_logs(sites: Sites, names: Sequence[str], fills: Mapping[str, float]) -> None:
    if not names:
        return
    counts = total(sites, "below", columns=list(names), thresholds=[[0.0]] * len(names))["counts"]
    for name, [count] in zip(names, counts, strict=True):
        if count:
            raise FedcanonError(f"the column '{name}' has values up to 0: it has no logarithm.")
        if fills[name] <= 0:
            raise FedcanonError(
                f"{fills[name]:g}, which stands for missing values of '{name}', has no logarithm."
            )


def _category_parts(sites: Sites, plan: Plan, names: Sequence[str]) -> dict[str, Category]:
    if not names:
        return {}
    told = total(sites, "levels", columns=list(names))
    named = {name: _named(plan, name, _counts(told, k)) for k, name in enumerate(names)}
    levels = [sorted(own) for own in named.values()]
    others = total(sites, "others", columns=list(names), levels=levels)["counts"]
    return {
        name: _category(plan, name, own, has_others=bool(count))
        for (name, own), count in zip(named.items(), others, strict=True)
    }


def _counts(told: Answer, place: int) -> dict[str, int]:
    """Return the counts of the levels of one of the categories."""
    mark = f"{place}/"
    return {k.removeprefix(mark): v for k, v in told.items() if k.startswith(mark)}


def levels(sites: Sites, column: str) -> list[str]:
    """Return the levels of a category over all sites, numbers in their order before texts."""
    return sorted(_counts(total(sites, "levels", columns=[column]), 0), key=_order)


def _order(level: str) -> tuple[int, float, str]:
    try:
        number = float(level)
    except ValueError:
        number = math.nan
    return (0, number, level) if math.isfinite(number) else (1, 0.0, level)


def _named(plan: Plan, name: str, counts: Mapping[str, int]) -> dict[str, int]:
    """Return the levels that have enough rows over all sites."""
    named = {level: n for level, n in counts.items() if n >= plan.minimum_count and level != OTHER}
    if not named:
        raise FedcanonError(
            f"no level of '{name}' has {plan.minimum_count} rows: leave the column out, or lower "
            "minimum_count."
        )
    return named


def _category(plan: Plan, name: str, named: Mapping[str, int], *, has_others: bool) -> Category:
    reference = max(sorted(named), key=lambda level: named[level])
    others = sorted((level for level in named if level != reference), key=_order)
    others += [OTHER] if has_others else []
    if not others:
        raise FedcanonError(f"the column '{name}' has only the level '{reference}': leave it out.")
    how = text_of(plan.missing.get(name, "most_frequent"))
    fill = reference if how == "most_frequent" else how
    if fill not in (reference, *others):
        raise FedcanonError(f"'{fill}' is no level of '{name}' to stand for missing values.")
    return Category(name, reference, tuple(others), fill)


def _standardised(
    sites: Sites, parts: tuple[Number | Category, ...], weights: str | None
) -> Recipe:
    """Find means and deviations; the second from the first, because sums of squares cancel."""
    width = sum(len(part.columns) for part in parts)
    first = total(sites, "moments", parts=parts, centres=[0.0] * width, weights=weights)
    means = first["sums"] / first["rows"]
    second = total(sites, "moments", parts=parts, centres=means.tolist(), weights=weights)
    shift = second["sums"] / second["rows"]
    scales = np.sqrt(second["squares"] / second["rows"] - shift**2)
    means = means + shift
    names = [name for part in parts for name in part.columns]
    for name in names:
        if names.count(name) > 1:
            raise FedcanonError(f"two columns would be called '{name}': rename one in the tables.")
    for constant in np.flatnonzero(scales <= 1e-12 * np.abs(means))[:1]:
        raise FedcanonError(
            f"'{names[constant]}' is the same in all rows: leave its column out, or its indicator."
        )
    return Recipe(parts, tuple(means.tolist()), tuple(scales.tolist()))
