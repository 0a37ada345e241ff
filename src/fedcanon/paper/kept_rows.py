"""Finished rows of Table VI as small files, so that rows may be run on several machines."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ValidationError

from fedcanon.errors import FedcanonError
from fedcanon.files import explained, write_whole
from fedcanon.paper.trials import Training
from fedcanon.paper.tuning import Shape, Trained
from fedcanon.runs.measures import Cost, Record

ByMethod = Mapping[str, Trained]
"""The trainings of a row with one shape of steps."""


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
    last: int


class _Row(BaseModel):
    key: str
    note: str
    found: dict[str, _Method]


def keep(path: Path, key: str, note: str, found: ByMethod) -> None:
    """Write a row that is finished with one shape of steps.

    Args:
        path: The file.
        key: Says with which settings the row was run.
        note: Which part of its dataset it has used.
        found: Its trainings.
    """
    methods = {
        method: _Method(
            settings=one.settings,
            grid=one.grid,
            trainings=[_Training.of(training) for training in one.trainings],
            last=one.last,
        )
        for method, one in found.items()
    }
    row = _Row(key=key, note=note, found=methods)
    with explained(f"cannot write to {path.parent}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, row.model_dump_json() + "\n")


def load(path: Path, key: str, shape: Shape) -> tuple[str, ByMethod] | None:
    """Return the note and the trainings of a row that was kept; None if there is no file.

    Of its measures only test accuracies are there.

    Raises:
        FedcanonError: The file is damaged, or the row was run with other settings.
    """
    if not path.is_file():
        return None
    try:
        with explained(f"cannot read {path}"):
            row = _Row.model_validate_json(path.read_bytes())
    except ValidationError as error:
        reason = f"is damaged ({error.errors()[0]['msg']})"
        raise FedcanonError(f"{path} {reason}: remove it, and the row is run again.") from None
    if row.key != key:
        raise FedcanonError(
            f"{path} was made with other settings than today's: remove it, and the row is run "
            "again."
        )
    found = {
        method: Trained(
            one.settings, [each.training() for each in one.trainings], one.grid, one.last, shape
        )
        for method, one in row.found.items()
    }
    return row.note, found


def _record(t: int, accuracy: float) -> Record:
    """A record of which nothing else is known."""
    return Record(
        round=t,
        loss=math.nan,
        objective=math.nan,
        gradient_norm=None,
        zeros=0,
        sparsity=math.nan,
        test={"accuracy": accuracy},
        diagnostics={},
        client_losses=[],
        cost=Cost(),
        evaluation_seconds=math.nan,
    )
