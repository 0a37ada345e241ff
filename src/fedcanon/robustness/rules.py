"""Rules that combine N vectors, of which up to B may be anything.

The vectors are the rows of a matrix. A rule gets B too, and returns a ``Combination``. It needs
the memory of a few such matrices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

STEPS = 100
"""The largest number of steps towards the geometric median."""

_FLOOR, _TOLERANCE = 1e-9, 1e-12
"""The smallest distance that counts, and the last step, both relative to the usual distance."""

FARTHEST = 1e9
"""The largest ratio of distances; it stands for all that are larger, or not even finite."""


class Combination(NamedTuple):
    """The vector that a rule makes of N others, and how it saw each of them.

    ``ratios`` are the distances D_i/ρ from the centre that the rule uses, where ρ is twice the
    (N − B)-th smallest of them: N − B vectors are always within 0.5. ``dropped`` tells which
    vectors had no influence at all.
    """

    vector: Tensor
    ratios: Tensor
    dropped: Tensor


Rule = Callable[[Tensor, int], Combination]
"""Combines the rows of a matrix, of which so many may be bad; it must be less than half of them."""


def mean(rows: Tensor, byzantine: int) -> Combination:
    """The mean, which a single bad vector can move anywhere."""
    return _seen_from(rows.mean(0), rows, byzantine)


def filtered(rows: Tensor, byzantine: int) -> Combination:
    """The mean without what is far away, which is the mean itself if nothing is.

        g = geometric median;  D_i = ‖v_i − g‖;  ρ = 2·(the (N − B)-th smallest D_i)
        e = g + mean of min(1, ρ/D_i)·(v_i − g) over all i with D_i ≤ 2ρ

    It never drops or shortens more than B vectors.
    """
    if byzantine == 0:
        return mean(rows, 0)
    centre = _geometric_median(rows)
    distances = _distances(rows, centre)
    radius = _radius(distances, byzantine)
    dropped = distances > 2 * radius
    weights = torch.where(distances > radius, radius / distances, 1.0).masked_fill(dropped, 0)
    moves = weights.to(rows.dtype) @ (rows - centre)
    vector = centre + moves / int((~dropped).sum())
    return Combination(vector, _ratios(distances, radius), dropped)


def geometric_median(rows: Tensor, byzantine: int) -> Combination:
    """The point with the smallest sum of distances to all vectors."""
    return _seen_from(_geometric_median(rows), rows, byzantine)


def trimmed_mean(rows: Tensor, byzantine: int) -> Combination:
    """In each coordinate, the mean without the B smallest and the B largest values."""
    kept = rows.sort(0).values[byzantine : len(rows) - byzantine]
    return _seen_from(kept.mean(0), rows, byzantine)


def median(rows: Tensor, byzantine: int) -> Combination:
    """The median of each coordinate."""
    return _seen_from(_median(rows), rows, byzantine)


def after_mixing(rule: Rule, rows: Tensor, byzantine: int) -> Combination:
    """Apply a rule to the means of each vector and its N − B − 1 nearest neighbours ("NNM").

    Honest vectors that differ much become more alike. The distances are those of the vectors
    themselves.
    """
    # The faster way to pairwise distances loses digits where vectors differ little.
    pairwise = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")
    nearest = pairwise.argsort(dim=1, stable=True)[:, : len(rows) - byzantine]
    found = rule(torch.stack([rows[near].mean(0) for near in nearest]), byzantine)
    return _seen_from(found.vector, rows, byzantine)._replace(dropped=found.dropped)


RULES_ALONE: Mapping[str, Rule] = {
    "filter": filtered,
    "geometric-median": geometric_median,
    "trimmed-mean": trimmed_mean,
    "median": median,
}
"""The rules that can also be applied after mixing."""


def without_absurd(rule: Rule, rows: Tensor, byzantine: int) -> Combination:
    """Apply a rule to vectors of which some may be infinite, not a number, or too large to square.

    Each of these is replaced by the median of the others in every coordinate, and counts as
    dropped. If all are absurd, so is the result.
    """
    largest = math.sqrt(torch.finfo(rows.dtype).max) / len(rows)
    absurd = ~(rows.abs() <= largest).all(1)
    if not absurd.any() or absurd.all():
        return rule(rows, byzantine)
    replaced = torch.where(absurd[:, None], _median(rows[~absurd]), rows)
    found = rule(replaced, byzantine)
    ratios = found.ratios.masked_fill(absurd, FARTHEST)
    return Combination(found.vector, ratios, found.dropped | absurd)


_NAMED: Mapping[str, Rule] = {
    **RULES_ALONE,
    **{f"nnm+{name}": partial(after_mixing, rule) for name, rule in RULES_ALONE.items()},
}
RULES: Mapping[str, Rule] = {
    "mean": mean,
    **{name: partial(without_absurd, rule) for name, rule in _NAMED.items()},
}
"""All rules by name."""


def _seen_from(centre: Tensor, rows: Tensor, byzantine: int) -> Combination:
    distances = _distances(rows, centre)
    nothing = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
    return Combination(centre, _ratios(distances, _radius(distances, byzantine)), nothing)


def _distances(rows: Tensor, centre: Tensor) -> Tensor:
    # In double precision, because the square of a large number in single precision overflows.
    distances: Tensor = torch.linalg.vector_norm(rows - centre, dim=1, dtype=torch.float64)
    return distances


def _radius(distances: Tensor, byzantine: int) -> Tensor:
    """Return ρ."""
    return 2 * distances.sort().values[len(distances) - byzantine - 1]


def _ratios(distances: Tensor, radius: Tensor) -> Tensor:
    ratios = torch.where(distances > 0, distances / radius, 0.0)
    return ratios.nan_to_num(FARTHEST).clamp(max=FARTHEST)


def _median(rows: Tensor) -> Tensor:
    ordered, n = rows.sort(0).values, len(rows)
    return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2


def _geometric_median(rows: Tensor) -> Tensor:
    """Return the geometric median by Weiszfeld's steps from the median of each coordinate."""
    centre = _median(rows)
    distances = _distances(rows, centre)
    # Relative to the largest distance instead, a huge vector would make all others look alike.
    usual = distances.sort().values[len(rows) // 2]
    if usual == 0:  # most vectors are there
        return centre
    for _ in range(STEPS):
        weights = (usual / distances.clamp(min=_FLOOR * usual)).to(rows.dtype)
        before, centre = centre, weights @ rows / weights.sum()
        if torch.linalg.vector_norm(centre - before) <= _TOLERANCE * usual:
            break
        distances = _distances(rows, centre)
    return centre
