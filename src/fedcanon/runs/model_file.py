"""Saves and loads trained models as safetensors files."""

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
    """Write parameters and statistics by name, so that there is never an incomplete file."""
    temporary = path.with_name(f"{path.name}.tmp")
    # Copies, because parameters are views of one vector, which safetensors does not accept.
    tensors = {name: tensor.detach().cpu().clone() for name, tensor in module.state_dict().items()}
    save_file(tensors, temporary, metadata={"format": "pt"})
    temporary.chmod(0o644)  # safetensors makes files that only their owner can read
    make_durable(temporary)
    temporary.rename(path)
    make_durable(path.parent)


def load_model(config: Config, shape: tuple[int, ...], classes: int, path: Path) -> nn.Module:
    """Return the network of a configuration with the parameters in a file, in evaluation mode.

    Args:
        config: The configuration, which names the model.
        shape: The shape of one input.
        classes: The number of classes.
        path: The file.

    Raises:
        FedcanonError: The file cannot be read, or does not fit the model.
    """
    module = make_model(config.model.model_dump()).build(shape, classes)
    module = module.to(getattr(torch, config.precision))
    try:
        module.load_state_dict(load_file(path))
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise FedcanonError(f"cannot load the model {path}: {reason}") from None
    return module.eval()
