"""Step sizes by a small grid, judged by the loss on training samples that were held out."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product
from typing import Any, NamedTuple

import torch

from fedcanon.data import Dataset
from fedcanon.paper.trials import Trainer, Training
from fedcanon.runs.build import divide_dataset
from fedcanon.runs.config import Config, changed
from fedcanon.search.selection import HELD_OUT

Settings = dict[str, Any]
Grid = Mapping[str, Sequence[Any]]

MEASURED_EVERY = 5
"""Rounds between two measurements of a validation loss."""
LATE = 0.75
"""A validation loss is the mean of those measured after this share of the rounds."""
FLOOR = 0.05
"""The share of a falling step that is left at the end."""


class Shape(StrEnum):
    """How α and β change during a training: not at all, or by half a cosine over its rounds."""

    constant = "constant"
    cosine = "cosine"


@dataclass(frozen=True)
class Tuned:
    """The settings of a grid from best to worst, and the validation loss of every point of it."""

    ranking: list[Settings]
    """Points that diverged are left out; if all did, the first stands alone."""
    grid: list[Settings]
    """Each point's settings and its ``validation_loss``, which is null where it diverged."""


class Curve(NamedTuple):
    """Means over seeds, and their standard deviations."""

    x: list[float]
    """Rounds, or seconds."""
    means: list[float]
    deviations: list[float]


@dataclass(frozen=True)
class Trained:
    """The settings of a method that were chosen, and the trainings with them, one for each seed."""

    settings: Settings
    trainings: list[Training]
    grid: list[Settings]
    """All settings among which validation chose, with their losses."""
    last: int
    """Measurements at the end of a training over which its accuracy is averaged."""
    shape: Shape = Shape.constant

    @property
    def accuracies(self) -> list[float]:
        """The test accuracy for each seed; 0 for all if one of the trainings diverged."""
        if self.diverged:
            return [0.0] * len(self.trainings)
        return [training.accuracy(self.last) for training in self.trainings]

    @property
    def accuracy(self) -> float:
        """The mean test accuracy over all seeds."""
        return statistics.fmean(self.accuracies)

    @property
    def diverged(self) -> bool:
        """Whether any of the trainings diverged."""
        return any(training.diverged for training in self.trainings)

    @property
    def beta(self) -> float:
        """The β that was chosen."""
        return float(self.settings["beta"])

    @property
    def shown(self) -> str:
        """The accuracy, its deviation over seeds and β as text."""
        spread = f"±{self.deviation:.4f}" if len(self.trainings) > 1 else ""
        accuracy = "diverged" if self.diverged else f"{self.accuracy:.4f}{spread}"
        return f"{accuracy} (β {self.beta:g})"

    @property
    def deviation(self) -> float:
        """The standard deviation of the accuracy over seeds; 0 where there is only one."""
        return statistics.stdev(self.accuracies) if len(self.trainings) > 1 else 0.0

    @property
    def validation_loss(self) -> float:
        """The validation loss of the chosen settings.

        It is infinite where they diverged, and where there was nothing to choose.
        """
        for point in self.grid:
            if self.settings.items() <= point.items() and point["validation_loss"] is not None:
                return float(point["validation_loss"])
        return math.inf

    def told(self) -> dict[str, Any]:
        """The numbers behind tables and curves."""
        return {
            "beta": self.beta,
            "accuracies": self.accuracies,
            "round, loss, accuracy": [training.points for training in self.trainings],
            "diverged": [training.diverged for training in self.trainings],
        }

    @property
    def curve(self) -> Curve:
        """Rounds, the test accuracy after each as a mean over all seeds, and its deviation."""
        rounds = [float(record.round) for record in self.trainings[0].records]
        by_seed = [training.accuracies for training in self.trainings]
        several = [*zip(*by_seed, strict=False)]  # a training that diverged is shorter
        means = [statistics.fmean(values) for values in several]
        deviations = [statistics.stdev(values) if len(values) > 1 else 0.0 for values in several]
        return Curve(rounds[: len(means)], means, deviations)


Results = Mapping[str, Mapping[str, Trained]]
"""By what the methods were trained on, and by method."""


def of_each(results: Results, what: Callable[[Trained], Any]) -> dict[str, dict[str, Any]]:
    """What a function makes of every result, under the same keys."""
    return {
        where: {method: what(trained) for method, trained in by_method.items()}
        for where, by_method in results.items()
    }


@dataclass(frozen=True)
class Tuner:
    """Chooses the settings of methods by validation, and trains with them.

    A validation takes ``rounds`` and is measured after ``every`` so many; the training that follows
    is repeated for all ``seeds``, and its accuracy is the mean of the ``last`` measurements.
    """

    trainer: Trainer
    dataset: Dataset
    rounds: int
    seeds: Sequence[int] = (0,)
    last: int = 1
    every: int = MEASURED_EVERY

    def train(
        self, label: str, config: Config, grid: Grid, shape: Shape = Shape.constant
    ) -> Trained:
        """Train with the best point of a grid of algorithm settings."""
        return self.train_ranked(label, config, self.rank(label, config, grid, shape), shape)

    def train_all(
        self, where: str, configs: Mapping[str, Config], betas: Sequence[float], shape: Shape
    ) -> dict[str, Trained]:
        """Train each method with the β that is best for it."""
        grid = {"beta": betas}
        return {
            method: self.train(f"{method}, {where}, {shape}", config, grid, shape)
            for method, config in configs.items()
        }

    def rank(self, label: str, config: Config, grid: Grid, shape: Shape = Shape.constant) -> Tuned:
        """Train every point of a grid of algorithm settings, and rank them by loss.

        The clients are those of the training that follows, each without a fifth of its samples;
        test samples are not looked at. Falling steps fall over the rounds of the validation. A
        single point needs no training.
        """
        points = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
        if len(points) == 1:
            return Tuned(points, [])
        lengths = {"rounds": self.rounds, "evaluate.every": self.every}
        short = changed(config, {**lengths, "data.partition": "users"})
        validation = held_out(config, self.dataset)
        losses = []
        for point in points:
            shown = ", ".join(f"{key} {value:g}" for key, value in point.items())
            own = with_steps(short, point, shape)
            training = self.trainer.train(f"tuning {label}: {shown}", own, validation)
            losses.append(_loss(training, self.rounds))
        order = sorted(range(len(points)), key=losses.__getitem__)
        ranking = [points[k] for k in order if math.isfinite(losses[k])]
        told = [
            {**point, "validation_loss": loss if math.isfinite(loss) else None}
            for point, loss in zip(points, losses, strict=True)
        ]
        return Tuned(ranking or points[:1], told)

    def train_ranked(
        self, label: str, config: Config, tuned: Tuned, shape: Shape = Shape.constant
    ) -> Trained:
        """Train with the best settings, for every seed; with the next best where one diverges.

        Where all diverge the result is that of the best.
        """
        results = []
        for settings in tuned.ranking:
            trainings = []
            for seed in self.seeds:
                own = changed(with_steps(config, settings, shape), {"seed": seed})
                trainings.append(self.trainer.train(f"{label}, seed {seed}", own, self.dataset))
                if trainings[-1].diverged:
                    break
            results.append(Trained(settings, trainings, tuned.grid, self.last, shape))
            if not results[-1].diverged:
                return results[-1]
        return results[0]


def with_steps(config: Config, settings: Settings, shape: Shape = Shape.constant) -> Config:
    """The configuration with other settings of its algorithm; with a cosine α and β fall."""
    falls = {"schedule": "cosine", "rounds": config.rounds, "floor": FLOOR}
    falling = {"alpha", "beta"} if shape is Shape.cosine else set()
    steps = {
        key: {**falls, "start": value} if key in falling else value
        for key, value in settings.items()
    }
    return changed(config, {f"algorithm.{key}": value for key, value in steps.items()})


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
    """The validation loss of a training; infinite where it diverged or is no number."""
    if training.diverged:
        return math.inf
    late = [record for record in training.records if record.round >= LATE * rounds]
    loss = statistics.fmean(record.test["test_loss"] for record in late)
    return loss if math.isfinite(loss) else math.inf
