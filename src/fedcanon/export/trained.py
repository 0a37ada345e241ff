"""Loads the network of a finished run."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path

from torch import nn

from fedcanon.export.operations import Shape
from fedcanon.objectives import DataSummary
from fedcanon.runs.folder import RunFolder
from fedcanon.runs.training import load


@dataclass(frozen=True)
class Trained:
    """A network in evaluation mode, its run, and a summary of the data it was trained on.

    ``shape`` is the shape of one input of the network; logistic regression takes images as vectors.
    """

    module: nn.Module
    shape: Shape
    run: RunFolder
    data: DataSummary


def trained(name: str | Path, *, trust: bool = False) -> Trained:
    """The network of a run.

    Args:
        name: The folder of the run, or its name in the runs folder.
        trust: Whether to import code that the run names even if this user has not made the run.

    Raises:
        FedcanonError: There is no such run, or it is not finished or not trusted.
    """
    run = RunFolder.find(name)
    module, data = load(run.path, trust=trust).model, run.data
    assert data is not None  # or it could not have been loaded
    # The module of binary logistic regression is a bare nn.Linear: it does not flatten.
    shape = (prod(data.shape),) if run.config.model.name == "logistic" else data.shape
    return Trained(module, shape, run, data)
