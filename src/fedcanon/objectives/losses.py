"""Losses of networks, by their name in a configuration."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcanon.errors import FedcanonError, first_line

Loss = Callable[[Tensor, Tensor], Tensor]
"""The mean loss over a batch, called as loss(outputs, targets) like PyTorch's losses."""


def cross_entropy() -> Loss:
    """Cross-entropy between scores and class numbers: multinomial logistic loss."""
    return nn.CrossEntropyLoss()


def is_plain_cross_entropy(loss: object) -> bool:
    """Tell whether a loss is the mean cross-entropy without weights or smoothing."""
    return (
        type(loss) is nn.CrossEntropyLoss
        and loss.weight is None
        and loss.label_smoothing == 0
        and loss.reduction == "mean"
        and loss.ignore_index < 0
    )


def gaussian() -> Loss:
    """½(η − y)² of the first output η: numbers with normal errors."""
    return _of_scores(lambda scores, y: (scores - y).square() / 2)


def binomial() -> Loss:
    """log(1 + e^η) − yη of the first output η: two classes, 0 and 1."""
    return _of_scores(lambda scores, y: functional.softplus(scores) - y * scores)


def poisson() -> Loss:
    """e^η − yη of the first output η: counts with the mean e^η."""
    return _of_scores(lambda scores, y: scores.exp() - y * scores)


def gamma() -> Loss:
    """η + y e^{−η} of the first output η: positive numbers with the mean e^η."""
    return _of_scores(lambda scores, y: scores + y * (-scores).exp())


def negative_binomial(dispersion: float = 1.0) -> Loss:
    """(y + 1/α) log(1 + α e^η) − yη of the first output η: counts that vary more than Poisson's.

    Args:
        dispersion: α, with the variance μ + αμ² for the mean μ = e^η.
    """
    shift = math.log(dispersion)
    return _of_scores(
        lambda scores, y: (y + 1 / dispersion) * functional.softplus(scores + shift) - y * scores
    )


def huber(delta: float = 1.35) -> Loss:
    """½r² for residuals r = η − y of the first output η up to δ, δ|r| − ½δ² beyond.

    Args:
        delta: δ.
    """
    return _of_scores(
        lambda scores, y: functional.huber_loss(scores, y, reduction="none", delta=delta)
    )


def _of_scores(loss: Callable[[Tensor, Tensor], Tensor]) -> Loss:
    """The mean of a loss of the first output of every sample."""
    return lambda outputs, targets: loss(outputs[:, 0], targets.to(outputs.dtype)).mean()


LOSSES: dict[str, Callable[..., Loss]] = {
    "cross_entropy": cross_entropy,
    "gaussian": gaussian,
    "binomial": binomial,
    "poisson": poisson,
    "gamma": gamma,
    "negative_binomial": negative_binomial,
    "huber": huber,
}
"""Every loss by its name in a configuration; each is made from its options."""


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
