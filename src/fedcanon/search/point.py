"""One point of a path: the model for one κ, and its measures."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from pydantic import TypeAdapter
from torch import Tensor

from fedcanon.checkpoint import Checkpoints
from fedcanon.errors import FedcanonError, first_line
from fedcanon.runs.measures import Record


@dataclass(frozen=True)
class Point:
    """The measures of the model for one κ.

    ``record`` holds the last measures of its run and ``stopped`` says why that ended; ``nonzeros``
    is the number of penalised weights other than 0, ``criterion`` what the selection makes small.
    """

    kappa: float
    record: Record
    stopped: str
    nonzeros: int
    criterion: float


_POINT = TypeAdapter(Point)


class Parameters(NamedTuple):
    """A model as one flat vector, and its normalisation statistics."""

    vector: Tensor
    buffers: Tensor


def keep_point(folder: Path, number: int, point: Point, parameters: Parameters) -> None:
    """Write the point with this number into the folder of a path."""
    _kept(folder, number).save(
        point.record.round, {"point": asdict(point), "parameters": parameters._asdict()}
    )


def load_point(folder: Path, number: int, device: torch.device) -> tuple[Point, Parameters] | None:
    """Read the point with this number; None if it has not been written.

    Raises:
        FedcanonError: There is something else in its place.
    """
    state = _kept(folder, number).load(device)
    if state is None:
        return None
    try:
        return _POINT.validate_python(state["point"]), Parameters(**state["parameters"])
    except (LookupError, TypeError, ValueError) as error:
        raise FedcanonError(
            f"the model number {number} in {folder} is damaged ({first_line(error)}): delete the "
            "folder of its κ, and it will be trained again."
        ) from None


def _kept(folder: Path, number: int) -> Checkpoints:
    return Checkpoints(folder / f"kappa-{number:03}", keep=1)
