"""Refuses losses that are no mean over the samples of a batch, unless they are declared so."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import torch
from torch import Tensor

from fedcanon.errors import FedcanonError, first_line
from fedcanon.objectives.base import Objective
from fedcanon.objectives.losses import Loss
from fedcanon.objectives.module import ModuleClients, ModuleObjective

MOST_TRIED = 10
"""How many clients try their losses; all if there are no more."""

MOST_CHUNKS = 4
"""Of how many pieces of a network's data the targets are tried."""

FEW = 8
"""The samples that a network is asked about when its loss is tried."""

NOT_A_MEAN = (
    "Divide by the number of samples; a loss that is no mean at all, such as Cox's partial "
    "likelihood, must be declared in Python, with ModuleObjective(…, whole=True)."
)


def require_mean(name: str, loss: Loss, outputs: Tensor, targets: Tensor, piece: int) -> None:
    """Raise a FedcanonError if a loss is not the mean over the samples of a batch.

    Values and gradients over a client's data are computed in pieces and averaged, which would be
    silently wrong for any other loss. The loss and its gradient are tried on some samples, once as
    a whole and once in pieces.

    Args:
        name: What the loss is called in messages.
        loss: The loss.
        outputs: What a network might say of the samples.
        targets: The targets of the samples.
        piece: How many samples are in a piece.
    """
    scores, count = outputs.detach().requires_grad_(), len(targets)
    try:
        whole = loss(scores, targets)
        if whole.shape != ():
            raise ValueError(f"it is of shape {tuple(whole.shape)}, and not one number")
        parts = [
            len(some) / count * loss(some, wanted)
            for some, wanted in zip(
                torch.split(scores, piece), torch.split(targets, piece), strict=True
            )
        ]
        mean = torch.stack(parts).sum()
        [slope], [mean_slope] = (torch.autograd.grad(each, scores) for each in (whole, mean))
    except Exception as error:  # a loss of the user's own may raise anything
        raise FedcanonError(
            f"the loss '{name}' fails on scores of shape {tuple(outputs.shape)}: "
            f"{first_line(error)}."
        ) from error
    if not torch.allclose(whole, mean, rtol=1e-3, atol=1e-6):
        found = f"it is {whole.item():.6g} on {count} samples and {mean.item():.6g} on average over"
    elif float((slope - mean_slope).norm()) > 1e-3 * float(slope.norm()) + 1e-6 / count:
        found = f"its gradient on {count} samples is not that on average over"
    else:
        return
    raise FedcanonError(
        f"the loss '{name}' is not the mean over samples: {found} pieces of {piece}. {NOT_A_MEAN}"
    )


def require_means(clients: Sequence[Objective]) -> None:
    """Raise a ``FedcanonError`` if a network's loss is no mean over samples and not declared so.

    Args:
        clients: Objectives of any kind. Of those of networks, ten with the most samples are tried.
    """
    if isinstance(clients, ModuleClients):
        parts = (clients.flat, clients.loss, clients.inputs, clients.targets)
        clients = [ModuleObjective(*parts, whole=clients.whole)]
    networks = (client for client in clients if isinstance(client, ModuleObjective))
    for client in heapq.nlargest(MOST_TRIED, networks, key=lambda client: client.samples):
        if not client.whole and client.samples > 1:
            _require_mean_of(client)


def _require_mean_of(client: ModuleObjective) -> None:
    scores, targets = client.scored(MOST_CHUNKS * client.chunk, FEW)
    name = getattr(client.loss, "__name__", type(client.loss).__name__)
    require_mean(name, client.loss, scores, targets, min(client.chunk, (len(targets) + 1) // 2))
