"""Quantiles over sites, from counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedcanon.tables.sites import Sites, total


def quantiles(sites: Sites, shares: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Return quantiles of columns over all sites, as NumPy computes them of the pooled values.

    The k-th smallest value is found exactly, by counts of values below thresholds: floating-point
    numbers are numbered in their order, and each of eight requests divides what is left of every
    search into 256 parts.

    Args:
        sites: The sites.
        shares: The quantiles of each column, between 0 and 1.
    """
    if not shares:
        return {}
    present = total(sites, "counts", columns=list(shares))["present"]
    counts = dict(zip(shares, map(int, present), strict=True))
    places = {name: [share * (counts[name] - 1) for share in own] for name, own in shares.items()}
    ranks = [
        (name, rank)
        for name, own in places.items()
        for rank in sorted({min(int(p) + k, counts[name] - 1) for p in own for k in (0, 1)})
    ]
    values = dict(zip(ranks, _smallest(sites, ranks), strict=True))
    found: dict[str, list[float]] = {}
    for name, own in places.items():
        ends = (
            [(name, int(p)) for p in own],
            [(name, min(int(p) + 1, counts[name] - 1)) for p in own],
        )
        pairs = zip(own, (values[e] for e in ends[0]), (values[e] for e in ends[1]), strict=True)
        found[name] = [low + (high - low) * (p - int(p)) for p, low, high in pairs]
    return found


def _smallest(sites: Sites, ranks: Sequence[tuple[str, int]]) -> list[float]:
    """Return values of columns at places in increasing order over all sites, counted from 0."""
    low = [_number_of(-np.inf)] * len(ranks)  # every value is above low, and at most high
    high = [_number_of(np.inf)] * len(ranks)
    columns = [name for name, _ in ranks]
    while any(h - a > 1 for a, h in zip(low, high, strict=True)):
        steps = [
            [a + (h - a) * k // 256 for k in range(1, 257)] for a, h in zip(low, high, strict=True)
        ]
        thresholds = [[_float_of(step) for step in own] for own in steps]
        counts = total(sites, "below", columns=columns, thresholds=thresholds)["counts"]
        for k, (_, rank) in enumerate(ranks):
            place = min(int(np.searchsorted(counts[k], rank, side="right")), 255)
            low[k], high[k] = (steps[k][place - 1] if place else low[k]), steps[k][place]
    return [_float_of(number) for number in high]


def _number_of(value: float) -> int:
    """Return the number of a floating-point number in the order of all of them."""
    bits = int(np.float64(value).view(np.int64))
    return bits if bits >= 0 else -(bits & (2**63 - 1))


def _float_of(number: int) -> float:
    """Return the floating-point number with a number in the order of all of them."""
    size = float(np.int64(abs(number)).view(np.float64))
    return size if number >= 0 else -size
