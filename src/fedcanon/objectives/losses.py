"""Losses of networks, by their name in a configuration."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fedcanon.errors import FedcanonError, first_line

Loss = Callable[[Tensor, Tensor], Tensor]
"""The mean loss over a batch, called as loss(outputs, targets) like PyTorch's losses."""


def cross_entropy() -> Loss:
    """Cross-entropy between scores and class numbers: multinomial logistic loss."""
    return nn.CrossEntropyLoss()


LOSSES: dict[str, Callable[..., Loss]] = {"cross_entropy": cross_entropy}
"""Every loss by its name in a configuration; each is made from its options."""


def require_mean(name: str, loss: Loss, classes: int) -> None:
    """Raise a FedcanonError if a loss is not the mean over the samples of a batch.

    Values and gradients over a client's data are computed in pieces and averaged, which would be
    silently wrong for any other loss. The loss is tried on random scores of samples of all classes,
    once as a whole and once sample by sample.

    Args:
        name: Its name in the configuration.
        loss: The loss.
        classes: The number of classes.
    """
    targets = torch.arange(min(2 * classes, 64)) % classes
    outputs = torch.randn(len(targets), classes, generator=torch.Generator().manual_seed(0))
    try:
        whole = loss(outputs, targets)
        single = [loss(outputs[k : k + 1], targets[k : k + 1]) for k in range(len(targets))]
        mean = torch.stack(single).mean()
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise FedcanonError(
            f"the loss '{name}' fails on scores of shape {tuple(outputs.shape)}: "
            f"{first_line(error)}."
        ) from error
    if whole.shape != () or not torch.allclose(whole, mean, rtol=1e-3, atol=1e-6):
        raise FedcanonError(
            f"the loss '{name}' is not the mean over samples: it is {whole.tolist()} on "
            f"{len(targets)} samples whose own losses have the mean {float(mean):.6g}."
        )
