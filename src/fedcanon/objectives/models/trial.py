"""One batch through a model before it is trained."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn

from fedcanon.errors import FedcanonError, first_line


def require_fit(name: str, module: nn.Module, inputs: Tensor, classes: int) -> None:
    """The scores that a model gives a few inputs, if it can be trained on batches like them.

    The batch passes through a copy, in training mode: the model itself stays as it is.

    Args:
        name: What the model is called in messages.
        module: The model.
        inputs: The smallest batch that there will be.
        classes: How many classes there are.

    Raises:
        FedcanonError: The model fails, or does not give one score for each class.
    """
    try:
        with torch.no_grad():
            outputs = deepcopy(module).train()(inputs)
    except (RuntimeError, ValueError) as error:
        raise FedcanonError(
            f"the model '{name}' fails on a batch of shape {tuple(inputs.shape)}: "
            f"{first_line(error)}."
        ) from error
    expected = (len(inputs), classes)
    if not isinstance(outputs, Tensor) or outputs.shape != expected:
        found = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise FedcanonError(
            f"the model '{name}' must return scores of shape {expected} for {len(inputs)} inputs "
            f"and {classes} classes, not {found}."
        )
