"""Finished rows of Table VI as small files, so that rows may be run on several machines."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from fedcanon.errors import FedcanonError
from fedcanon.files import explained, write_whole
from fedcanon.paper.networks import Lengths
from fedcanon.paper.trials import Training
from fedcanon.paper.tuning import Shape, Trained
from fedcanon.runs.measures import Cost, Record

Found = Mapping[Shape, Mapping[str, Trained]]
"""The trainings of a row, by the shape of steps and by method."""


class _Training(BaseModel):
    """The test accuracy after some rounds."""

    accuracies: list[tuple[int, float]]
    diverged: str

    @classmethod
    def of(cls, training: Training) -> _Training:
        accuracies = [(record.round, record.test["accuracy"]) for record in training.records]
        return cls(accuracies=accuracies, diverged=training.diverged)

    def training(self) -> Training:
        return Training([_record(*point) for point in self.accuracies], self.diverged)


class _Method(BaseModel):
    """The settings that were chosen, all that were tried, and a training for each seed."""

    settings: dict[str, float]
    grid: list[dict[str, float | None]]
    trainings: list[_Training]


class _Row(BaseModel):
    lengths: dict[str, Any]
    note: str
    found: dict[Shape, dict[str, _Method]]


def keep(path: Path, lengths: Lengths, note: str, found: Found) -> None:
    """Write a finished row: how it was run, on which part of its data, and what was found."""
    methods = {
        shape: {
            method: _Method(
                settings=one.settings,
                grid=one.grid,
                trainings=[_Training.of(training) for training in one.trainings],
            )
            for method, one in by_method.items()
        }
        for shape, by_method in found.items()
    }
    row = _Row(lengths=asdict(lengths), note=note, found=methods)
    with explained(f"cannot write to {path.parent}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, row.model_dump_json() + "\n")


def load(path: Path, lengths: Lengths) -> tuple[str, Found] | None:
    """Return the note and the trainings of a row that was kept.

    None if there is no file, or if the row was run with other settings than ``lengths``. Of its
    measures only test accuracies are there.

    Raises:
        FedcanonError: The file is damaged.
    """
    if not path.is_file():
        return None
    try:
        row = _Row.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise FedcanonError(
            f"{path} is damaged ({error.errors()[0]['msg']}): remove it, and the row is run again."
        ) from None
    if row.lengths != json.loads(json.dumps(asdict(lengths))):
        return None
    found = {
        shape: {
            method: Trained(
                one.settings, [each.training() for each in one.trainings], one.grid, 1, shape
            )
            for method, one in by_method.items()
        }
        for shape, by_method in row.found.items()
    }
    return row.note, found


def _record(t: int, accuracy: float) -> Record:
    unknown, test = math.nan, {"accuracy": accuracy}
    return Record(t, unknown, unknown, None, 0, 0.0, test, {}, [], Cost(), 0.0)
