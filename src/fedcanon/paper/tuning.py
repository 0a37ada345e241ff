"""Step sizes by a small grid, judged by the loss on training samples that were held out."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch

from fedcanon.data import Dataset
from fedcanon.errors import FedcanonError
from fedcanon.paper.trials import Trainer, Training
from fedcanon.runs.build import divide_dataset
from fedcanon.runs.config import Config, changed
from fedcanon.search.selection import HELD_OUT

Settings = dict[str, Any]
Grid = Mapping[str, Sequence[Any]]

MEASURED_EVERY = 5
"""Rounds."""
LATE = 0.75
"""A validation loss is the mean of those measured after this share of the rounds."""


@dataclass(frozen=True)
class Tuned:
    """The settings of a grid from best to worst, and the validation loss of every point of it."""

    ranking: list[Settings]
    """Without those that diverged."""
    grid: list[Settings]
    """Each point's settings and its ``validation_loss``, which is null where it diverged."""


def tune(
    trainer: Trainer, label: str, config: Config, dataset: Dataset, grid: Grid, rounds: int
) -> Tuned:
    """Train every point of a grid of algorithm settings, and rank them by loss.

    The clients are those of the training that follows, each without a fifth of its samples; test
    samples are not looked at.
    """
    points = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    if len(points) == 1:
        return Tuned(points, [])
    short = changed(
        config,
        {"rounds": rounds, "evaluate.every": MEASURED_EVERY, "data.partition": "users"},
    )
    validation = held_out(config, dataset)
    losses = []
    for point in points:
        shown = ", ".join(f"{key} {value:g}" for key, value in point.items())
        training = trainer.train(f"tuning {label}: {shown}", with_steps(short, point), validation)
        losses.append(_loss(training, rounds))
    order = sorted(range(len(points)), key=losses.__getitem__)
    ranking = [points[k] for k in order if math.isfinite(losses[k])]
    if not ranking:
        raise FedcanonError(f"{label} diverged with every step of its grid: {points}.")
    told = [
        {**point, "validation_loss": loss if math.isfinite(loss) else None}
        for point, loss in zip(points, losses, strict=True)
    ]
    return Tuned(ranking, told)


def train_tuned(
    trainer: Trainer,
    label: str,
    config: Config,
    dataset: Dataset,
    tuned: Tuned,
    seeds: Sequence[int] = (0,),
) -> tuple[Settings, list[Training]]:
    """Train with the best settings, for every seed; with the next best where one of them diverges.

    Where all diverge the result is that of the best.
    """
    results = []
    for settings in tuned.ranking:
        own = with_steps(config, settings)
        trainings = [
            trainer.train(f"{label}, seed {seed}", changed(own, {"seed": seed}), dataset)
            for seed in seeds
        ]
        results.append((settings, trainings))
        if not any(training.diverged for training in trainings):
            return results[-1]
    return results[0]


def with_steps(config: Config, settings: Settings) -> Config:
    """The configuration with other settings of its algorithm."""
    return changed(config, {f"algorithm.{key}": value for key, value in settings.items()})


def held_out(config: Config, dataset: Dataset) -> Dataset:
    """Every client's training samples but for a fifth, and all these fifths as test samples.

    The users of the training samples are their clients, so that the partition "users" has the
    clients of the configuration.
    """
    whole, parts = divide_dataset(config, dataset)
    generator = torch.Generator().manual_seed(config.seed)
    shuffled = [part[torch.randperm(len(part), generator=generator)] for part in parts]
    held = [part[: int(HELD_OUT * len(part))] for part in shuffled]
    kept = [part[len(own) :] for part, own in zip(shuffled, held, strict=True)]
    clients = torch.repeat_interleave(
        torch.arange(len(kept)), torch.tensor([len(part) for part in kept])
    )
    train = replace(whole.train.take(torch.cat(kept)), users=clients)
    # Runs are found again by this note too: it must tell one partition from another.
    held_of = f"a share of {HELD_OUT:g} of every client of {config.data.partition} held out"
    note = f"{dataset.note}; {held_of}".removeprefix("; ")
    return replace(whole, train=train, test=whole.train.take(torch.cat(held)), note=note)


def _loss(training: Training, rounds: int) -> float:
    if training.diverged:
        return math.inf
    late = [record for record in training.records if record.round >= LATE * rounds]
    return statistics.fmean(record.test["test_loss"] for record in late)
