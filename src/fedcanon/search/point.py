"""One point of a path: the model for one κ, and its measures."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fedcanon.checkpoint import Checkpoints
from fedcanon.runs.measures import Record


@dataclass(frozen=True)
class Point:
    """The measures of the model for one κ.

    ``nonzeros`` counts penalised weights; ``criterion`` is what the selection makes small.
    """

    kappa: float
    record: Record
    stopped: str
    nonzeros: int
    criterion: float


class Parameters(NamedTuple):
    """A model as one flat vector, and its normalisation statistics."""

    vector: Tensor
    buffers: Tensor


def keep_point(folder: Path, number: int, point: Point, parameters: Parameters) -> None:
    """Keep a point, whole or not at all."""
    _kept(folder, number).save(
        point.record.round, {"point": asdict(point), "parameters": parameters._asdict()}
    )


def load_point(folder: Path, number: int, device: torch.device) -> tuple[Point, Parameters] | None:
    """A point that was kept; None where there is none."""
    state = _kept(folder, number).load(device)
    if state is None:
        return None
    row = state["point"]
    point = Point(**{**row, "record": Record.from_dict(row["record"])})
    return point, Parameters(**state["parameters"])


def _kept(folder: Path, number: int) -> Checkpoints:
    return Checkpoints(folder / f"kappa-{number:03}", keep=1)
