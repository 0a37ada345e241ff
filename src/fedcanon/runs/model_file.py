"""A trained model in a file that any reader of safetensors understands."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from fedcanon.checkpoint import make_durable
from fedcanon.errors import FedcanonError
from fedcanon.runs.config import Config
from fedcanon.runs.named import make_model


def save_model(module: nn.Module, path: Path) -> None:
    """Write parameters and statistics by their names; the file is there whole or not at all."""
    temporary = path.with_name(f"{path.name}.tmp")
    # Copies, because parameters are views into one vector and a file holds each on its own.
    tensors = {name: tensor.detach().cpu().clone() for name, tensor in module.state_dict().items()}
    save_file(tensors, temporary, metadata={"format": "pt"})
    temporary.chmod(0o644)  # safetensors writes files that only their owner may read
    make_durable(temporary)
    temporary.rename(path)
    make_durable(path.parent)


def load_model(config: Config, shape: tuple[int, ...], classes: int, path: Path) -> nn.Module:
    """The network of a configuration with the parameters of a file, in evaluation mode."""
    module = make_model(config.model.model_dump()).build(shape, classes)
    module = module.to(getattr(torch, config.precision))
    try:
        module.load_state_dict(load_file(path))
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise FedcanonError(f"cannot load the model {path}: {reason}") from None
    return module.eval()
