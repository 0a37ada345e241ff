"""One batch through a model before it is trained."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn

from fedcanon.errors import FedcanonError


def require_fit(name: str, module: nn.Module, inputs: Tensor, classes: int) -> Tensor:
    """The scores of a few ``inputs``, from a model that can be trained on batches like them.

    A model that fails or has other outputs than one score per class is refused. The batch passes
    through a copy, in training mode: the model itself stays as it is.
    """
    try:
        with torch.no_grad():
            outputs = deepcopy(module).train()(inputs)
    except (RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise FedcanonError(
            f"the model '{name}' fails on a batch of shape {tuple(inputs.shape)}: {reason}."
        ) from error
    expected = (len(inputs), classes)
    if not isinstance(outputs, Tensor) or outputs.shape != expected:
        found = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise FedcanonError(
            f"the model '{name}' must return scores of shape {expected} for {len(inputs)} inputs "
            f"and {classes} classes, not {found}."
        )
    return outputs
