"""Losses of networks, by their name in a configuration."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional

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
