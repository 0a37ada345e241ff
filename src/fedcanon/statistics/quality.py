"""How good a model is: deviance, discrimination and calibration, at each site and over all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcanon.expansion import unpack_expansion
from fedcanon.objectives.cox import Cox
from fedcanon.objectives.families import Binomial
from fedcanon.objectives.linear import Array, LinearObjective
from fedcanon.objectives.multinomial import Multinomial
from fedcanon.statistics.model import Rows
from fedcanon.statistics.solving import Expansions
from fedcanon.tables.site import Answer

FINEST, WIDEST = 1 / 16, 16.0
"""The width of a bin of scores, and the score beyond which all are in the outermost bins."""

BINS = int(2 * WIDEST / FINEST)

GROUPS = 10
"""The calibration curve has so many groups of probabilities."""


@dataclass(frozen=True)
class Quality:
    """The quality of a model on some rows; what the family does not have is None.

    Args:
        rows: How many rows there are.
        deviance: The mean deviance.
        auc: The share of pairs of a row with and one without the event that scores put in order.
        brier: The mean square of the difference between event and probability.
        concordance: The share of pairs of one site in which who has the event earlier has the
            higher score.
    """

    rows: int
    deviance: float
    auc: float | None
    brier: float | None
    concordance: float | None


@dataclass(frozen=True)
class Calibration:
    """Rows in groups of increasing probability: their mean probability, share of events, number."""

    expected: Array
    observed: Array
    rows: Array


def no_measures() -> Answer:
    """Return the measures of no rows."""
    bins, groups = np.zeros(BINS), np.zeros(GROUPS)
    names = ("rows", "weight", "deviance", "happened", "squares", "agree", "comparable")
    numbers = dict.fromkeys(names, 0.0)
    curve = {"grouped": groups, "expected": groups, "observed": groups}
    return {**numbers, "binary": 0.0, "events": bins, "others": bins, **curve}


def measures(
    objective: LinearObjective | Multinomial, vector: Tensor, *, pairs: bool = True
) -> Answer:
    """Return what is to know of a model's quality on the rows of an objective, as sums.

    Rows count by their weights, but for "rows". Without ``pairs``, those of a Cox model are not
    counted.
    """
    told = no_measures()
    told["rows"], told["weight"] = objective.samples, objective.total_weight
    told["deviance"] = objective.total_weight * objective.deviance(vector)
    if isinstance(objective, Multinomial):
        return told
    # Rounded, so that rows with the same columns have the same score on every machine.
    scores = objective.own_scores(vector).round(10)
    if isinstance(objective, Cox):
        told["happened"] = float(objective.happened.sum())
        if pairs:
            found = concordant(objective.times, objective.happened, scores)
            told["agree"], told["comparable"] = found
    elif isinstance(objective.family, Binomial):
        events, chances = objective.responses > 0, objective.family.means(scores)
        weights = objective.weights * (objective.total_weight / objective.samples)
        told["binary"] = 1.0
        told["squares"] = float((weights * (events - chances) ** 2).sum())
        told["agree"], told["comparable"] = in_order(events, scores, weights)
        bins = np.clip((scores + WIDEST) / FINEST, 0, BINS - 1).astype(int)
        told["events"] = np.bincount(bins, weights * events, minlength=BINS)
        told["others"] = np.bincount(bins, weights * ~events, minlength=BINS)
        groups = np.minimum((chances * GROUPS).astype(int), GROUPS - 1)
        told["grouped"] = np.bincount(groups, weights, minlength=GROUPS)
        told["expected"] = np.bincount(groups, weights * chances, minlength=GROUPS)
        told["observed"] = np.bincount(groups, weights * events, minlength=GROUPS)
    return told


def quality_of(told: Answer, place: int, *, sites: int) -> Quality:
    """Return the quality that follows from measures, or from sums of them.

    The AUC over several sites is that of scores in bins of 1/16; that of one site is exact.

    Args:
        told: What the sites have told of several models.
        place: Which of the models.
        sites: Over how many sites the measures were added up.
    """
    weight, binary = max(float(told["weight"][place]), 1e-300), bool(told["binary"][place])
    agree, comparable = float(told["agree"][place]), float(told["comparable"][place])
    if binary and sites > 1:
        agree, comparable = _pairs(told["events"][place], told["others"][place])
    share = agree / comparable if comparable else None
    return Quality(
        int(told["rows"][place]),
        float(told["deviance"][place]) / weight,
        auc=share if binary else None,
        brier=float(told["squares"][place]) / weight if binary else None,
        concordance=None if binary else share,
    )


def calibration_of(told: Answer, place: int) -> Calibration:
    """Return the calibration curve, in groups of equal width."""
    rows = told["grouped"][place]
    kept = rows > 0
    expected = told["expected"][place][kept] / rows[kept]
    return Calibration(expected, told["observed"][place][kept] / rows[kept], rows[kept])


def _pairs(events: Array, others: Array) -> tuple[float, float]:
    """Count pairs of an event and another row, in order and in all, from bins of scores."""
    below = np.cumsum(others) - others
    return float(events @ (below + others / 2)), float(events.sum() * others.sum())


def in_order(
    events: NDArray[np.bool_], scores: Array, weights: Array | float = 1.0
) -> tuple[float, float]:
    """Count pairs of an event and another row: those in order, ties as half, and all of them."""
    different, place = np.unique(scores, return_inverse=True)
    count = len(different)
    own, others = weights * events, weights * ~events
    sums = [np.bincount(place, part, count).astype(float) for part in (own, others)]
    return _pairs(sums[0], sums[1])


def concordant(times: Array, events: NDArray[np.bool_], scores: Array) -> tuple[float, float]:
    """Count the pairs of Harrell's C: those in order, and those of which the order is known.

    It is known who has the event earlier if the earlier time is that of an event. Pairs with equal
    scores count as half.
    """
    agree = comparable = 0.0
    for time, score in zip(times[events], scores[events], strict=True):
        later = (times > time) | ((times == time) & ~events)
        comparable += int(later.sum())
        agree += int((scores[later] < score).sum()) + 0.5 * int((scores[later] == score).sum())
    return agree, comparable


def calibration_slopes(
    expansions: Expansions, vector: Tensor, rows: Sequence[Rows]
) -> list[float | None]:
    """Return the slope of responses on the scores of a model, for each of some rows.

    It is a in the model with the scores a·xᵀw + b that fits the rows best: 1 if it is calibrated,
    below 1 if it is overfitted. It is None if there is none, as for scores that are all alike.

    Args:
        expansions: f.
        vector: The model.
        rows: The rows.
    """
    directions = torch.zeros(2, len(vector), dtype=torch.float64)
    directions[0] = vector
    if expansions.model.has_intercept:
        directions[0, -1], directions[1, -1] = 0.0, 1.0
        start = torch.stack([torch.ones(()), vector[-1]]).double()
    else:
        directions, start = directions[:1], torch.ones(1, dtype=torch.float64)
    if not bool(directions[0].any()):
        return [None] * len(rows)
    points, moves = [start] * len(rows), [np.inf] * len(rows)
    for _ in range(25):
        found = expansions.at([(r, p @ directions) for r, p in zip(rows, points, strict=True)])
        for k, packed in enumerate(found):
            points[k], moves[k] = _newton_step(points[k], packed, directions)
        if max(moves) < 1e-9:
            break
    return [float(p[0]) if m < 1e-6 else None for p, m in zip(points, moves, strict=True)]


def _newton_step(point: Tensor, packed: Tensor, directions: Tensor) -> tuple[Tensor, float]:
    _, gradient, hessian = unpack_expansion(packed, directions.shape[1])
    square = directions @ hessian @ directions.T
    if not bool(torch.isfinite(square).all()) or float(torch.linalg.det(square)) <= 0:
        return point, np.nan
    step = torch.linalg.solve(square, directions @ gradient)
    return point - step, float(step.abs().max())
