"""Saves and loads trained models as safetensors files."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from fedcanon.errors import FedcanonError, first_line
from fedcanon.files import write_whole
from fedcanon.objectives.models import Imported
from fedcanon.runs.config import Config
from fedcanon.runs.named import make_model

METADATA = {"format": "pt"}
"""What other readers of safetensors look for."""


def save_model(module: nn.Module, path: Path) -> None:
    """Write parameters and statistics by their names; the file is there whole or not at all."""
    write_whole(path, partial(write_tensors, tensors_of(module)))


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and statistics by their names.

    They are copies, because parameters are views into one vector and a file holds each on its own.
    """
    return {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in module.state_dict().items()
    }


def write_tensors(
    tensors: dict[str, Tensor], path: Path, metadata: Mapping[str, str] | None = None
) -> None:
    """Write a safetensors file that everybody may read, with more metadata if need be."""
    save_file(tensors, path, metadata={**METADATA, **(metadata or {})})
    path.chmod(0o644)  # safetensors writes files that only their owner may read


def load_model(config: Config, shape: tuple[int, ...], classes: int, path: Path) -> nn.Module:
    """The network of a configuration with the parameters of a file, in evaluation mode."""
    model = make_model(config.model.model_dump())
    try:
        # Our own networks take up memory only once it is certain that the file fits them.
        with torch.device("cpu" if isinstance(model, Imported) else "meta"):
            module = model.build(shape, classes)
        module.load_state_dict(load_file(path), assign=True)
    except (OSError, SafetensorError, RuntimeError, TypeError) as error:
        raise FedcanonError(f"cannot load the model {path}: {first_line(error)}.") from None
    return module.to(getattr(torch, config.precision)).eval()
