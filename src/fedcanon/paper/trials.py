"""Trainings that are kept: each is an ordinary run folder, found again by its settings."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path

import numpy as np
import torch

from fedcanon.data import Dataset, Split
from fedcanon.errors import DivergenceError
from fedcanon.files import write_whole
from fedcanon.runs import Observer, Record
from fedcanon.runs.config import Config
from fedcanon.runs.folder import RunFolder
from fedcanon.runs.training import resume, train

SAME_ACCURACY = 0.01
"""Accuracies that differ by less are taken as equal."""


class Watch:
    """Is told of all work that takes long, to show how far it is; this one shows nothing."""

    def training(self, label: str) -> AbstractContextManager[Observer]:
        """Gives the observer of one training."""
        return nullcontext(Observer())

    @contextmanager
    def steps(self, label: str, total: int) -> Iterator[Callable[[], None]]:
        """Gives a function that is to be called after each of ``total`` steps."""
        yield lambda: None


@dataclass(frozen=True)
class Training:
    """The measures of a training; if it diverged, also the message that says so."""

    records: list[Record]
    diverged: str = ""

    @property
    def accuracies(self) -> list[float]:
        """The test accuracy of every measurement."""
        return [record.test["accuracy"] for record in self.records]

    @property
    def points(self) -> list[tuple[int, float, float]]:
        """Round, training loss and test accuracy of every measurement."""
        return [(r.round, r.loss, r.test["accuracy"]) for r in self.records]

    def accuracy(self, last: int = 1) -> float:
        """Mean test accuracy of the last measurements; 0 for a model that has diverged."""
        return 0.0 if self.diverged else statistics.fmean(self.accuracies[-last:])


@dataclass(frozen=True)
class Trainer:
    """Trains the runs of an item, keeps them in ``folder`` and tells ``watch`` of each."""

    folder: Path
    watch: Watch = field(default_factory=Watch)

    def train(self, label: str, config: Config, dataset: Dataset) -> Training:
        """Load a training that is finished or has diverged; resume or begin any other."""
        path = self.folder / run_name(config, dataset)
        run, note = RunFolder(path), path / "diverged.txt"
        if run.result is None and not note.is_file():
            try:
                self._go_on(label, path, config, dataset)
            except DivergenceError as error:
                write_whole(note, str(error))
            # The states of all clients of a network fill a disk, and the run is over.
            run.checkpoints.remove()
        diverged = note.read_text(encoding="utf-8") if note.is_file() else ""
        return Training(run.records(), diverged)

    def _go_on(self, label: str, path: Path, config: Config, dataset: Dataset) -> None:
        with self.watch.training(label) as observer:
            if (path / "config.toml").is_file():
                resume(path, dataset=dataset, observers=[observer])
            else:
                RunFolder(path).discard()  # if it was killed before it was a run
                train(config, dataset=dataset, folder=path, observers=[observer])


def run_settings(config: Config) -> str:
    """The settings on which the result of a training depends."""
    return config.model_dump_json(exclude={"engine", "checkpoint", "deployment"})


def run_name(config: Config, dataset: Dataset) -> str:
    """A name that is the same for the same settings on the same data."""
    told = f"{run_settings(config)} {dataset.note} {len(dataset.train)} {len(dataset.test)}"
    digest = blake2b(told.encode(), digest_size=5).hexdigest()
    words = (dataset.name, config.data.partition, config.model.name, config.algorithm["name"])
    return "-".join([*(word.replace(":", "") for word in words), digest])


def portion(dataset: Dataset, train: int | None, test: int | None) -> Dataset:
    """At most so many samples of each split, from a fixed shuffle; all where it is None."""
    smaller = replace(dataset, train=_first(dataset.train, train), test=_first(dataset.test, test))
    if len(smaller.train) == len(dataset.train) and len(smaller.test) == len(dataset.test):
        return dataset
    if dataset.note:
        counts = f"{len(smaller.train):,} training and {len(smaller.test):,} test samples"
        return replace(smaller, note=f"{dataset.note}; of these {counts}")
    note = (
        f"subset: {len(smaller.train):,} of {len(dataset.train):,} training and "
        f"{len(smaller.test):,} of {len(dataset.test):,} test samples"
    )
    return replace(smaller, note=note)


def _first(split: Split, count: int | None) -> Split:
    if count is None or count >= len(split):
        return split
    rows = np.sort(np.random.default_rng(0).permutation(len(split))[:count])
    return split.take(torch.from_numpy(rows))
