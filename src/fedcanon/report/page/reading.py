"""Reads from the folder of a run what a page shows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from fedcanon.errors import FedcanonError
from fedcanon.objectives import DataSummary
from fedcanon.runs.config import Config, dotted
from fedcanon.runs.environment import Environment
from fedcanon.runs.folder import RunFolder
from fedcanon.runs.measures import Record
from fedcanon.runs.training import MODEL


@dataclass(frozen=True)
class Layer:
    """One weight tensor of a model: its number of entries, and how many of them are 0."""

    size: int
    zeros: int


@dataclass(frozen=True)
class Run:
    """A run as its folder was when it was read.

    ``status`` is "finished", "running" or "interrupted" and ``stopped`` says why it ended, if it
    did. ``settings`` is the configuration with dotted keys, such as "algorithm.beta". ``layers``
    is None while there is no model.
    """

    name: str
    status: str
    stopped: str
    config: Config
    settings: dict[str, Any]
    environment: Environment | None
    records: list[Record]
    data: DataSummary | None
    layers: dict[str, Layer] | None


def read_run(folder: RunFolder) -> Run:
    """Read a run, whether it is finished, going on or interrupted.

    Raises:
        FedcanonError: A file of the run is missing or damaged.
    """
    config = folder.config  # first, because a folder without it is not a run
    status, ending, environment = folder.status, folder.result, folder.environment
    settings = dict(dotted(config.model_dump(exclude_none=True)))
    if environment is not None:  # what "auto" became depends on the seed: it is one setting
        settings.update(dict.fromkeys(environment.automatic, "auto"))
    return Run(
        folder.name,
        status,
        "" if ending is None else ending.stopped,
        config,
        settings,
        environment,
        folder.records(),
        folder.data,
        _layers(folder.path / MODEL) if status == "finished" else None,
    )


def _layers(path: Path) -> dict[str, Layer] | None:
    """The weight tensors of a model, on which penalties act by default; all if there are none."""
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            names = sorted(file.keys(), key=_natural_order)
            tensors = {name: file.get_tensor(name) for name in names}
    except (OSError, SafetensorError) as error:
        raise FedcanonError(f"cannot read the model {path}: {error}.") from None
    weights = {name: tensor for name, tensor in tensors.items() if tensor.dim() > 1} or tensors
    return {
        name: Layer(tensor.numel(), int((tensor == 0).sum()))
        for name, tensor in weights.items()
        if tensor.numel()
    }


def _natural_order(name: str) -> list[tuple[str, int]]:
    """A key to sort names by: layer2 comes before layer10."""
    return [(text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d*)", name)]
