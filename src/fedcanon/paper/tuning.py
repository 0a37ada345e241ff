"""Step sizes by a small grid, judged by the loss on training samples that were held out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from fedcanon.data import Dataset
from fedcanon.errors import FedcanonError
from fedcanon.paper.trials import Bench
from fedcanon.runs.config import Config, changed
from fedcanon.search.selection import HELD_OUT, hold_out

Settings = dict[str, Any]
Grid = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Tuned:
    """The best settings of a grid, and the validation loss of every point of it."""

    settings: Settings
    grid: list[Settings]
    """Each point's settings and its ``validation_loss``, which is null where it diverged."""


def tune(
    bench: Bench, label: str, config: Config, dataset: Dataset, grid: Grid, rounds: int
) -> Tuned:
    """Train every point of a grid of algorithm settings, and take the one of least loss.

    A fifth of the training samples is held out for it; test samples are not looked at.
    """
    points = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    if len(points) == 1:
        return Tuned(points[0], [])
    kept, held = hold_out(dataset, config.seed)
    note = f"{dataset.note}; a share of {HELD_OUT:g} held out".removeprefix("; ")
    validation = replace(kept, test=held, note=note)
    losses = []
    for point in points:
        own = {f"algorithm.{key}": value for key, value in point.items()}
        short = changed(config, {**own, "rounds": rounds, "evaluate.every": rounds})
        shown = ", ".join(f"{key} {value:g}" for key, value in point.items())
        losses.append(_loss(bench, f"tuning {label}: {shown}", short, validation))
    if not any(map(math.isfinite, losses)):
        raise FedcanonError(f"{label} diverged with every step of its grid: {points}.")
    told = [
        {**point, "validation_loss": loss if math.isfinite(loss) else None}
        for point, loss in zip(points, losses, strict=True)
    ]
    return Tuned(points[losses.index(min(losses))], told)


def _loss(bench: Bench, label: str, config: Config, validation: Dataset) -> float:
    training = bench.train(label, config, validation)
    return math.inf if training.diverged else training.records[-1].test["test_loss"]
