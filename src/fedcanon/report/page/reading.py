"""What a page takes from the folder of a run."""

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
    """One weight tensor of a model: how many entries it has and how many of them are 0."""

    size: int
    zeros: int


@dataclass(frozen=True)
class Run:
    """A run as it is at one moment.

    ``settings`` is the configuration with dotted keys; ``layers`` is None while there is no model.
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
    """Read a run, whether it is finished, going on or interrupted."""
    config = folder.config  # first: it is missing where there is no run at all
    status, ending, environment = folder.status, folder.result, folder.environment
    settings = dict(dotted(config.model_dump(exclude_none=True)))
    if environment is not None:  # filled in from the data of each seed, and yet the same setting
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
    """The tensors that a penalty acts on by default: weights, or all where there are none."""
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in sorted(file.keys(), key=_numbers)}
    except (OSError, SafetensorError) as error:
        raise FedcanonError(f"cannot read the model {path}: {error}.") from None
    weights = {name: tensor for name, tensor in tensors.items() if tensor.dim() > 1} or tensors
    return {
        name: Layer(tensor.numel(), int((tensor == 0).sum()))
        for name, tensor in weights.items()
        if tensor.numel()
    }


def _numbers(name: str) -> list[tuple[str, int]]:
    """Sorts layer10 behind layer2."""
    return [(text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d*)", name)]
