"""Networks by name, sized from a dataset's shape and number of classes."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from torch import nn


def linear(shape: tuple[int, ...], classes: int) -> nn.Module:
    """One linear layer: multinomial logistic regression under the cross-entropy loss."""
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), classes))


def mlp(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Three linear layers with ReLU, 200 neurons in each hidden one."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(prod(shape), 200),
        nn.ReLU(),
        nn.Linear(200, 200),
        nn.ReLU(),
        nn.Linear(200, classes),
    )


MODELS: dict[str, Callable[[tuple[int, ...], int], nn.Module]] = {"linear": linear, "mlp": mlp}
"""Every network by its name in a configuration."""

LOGISTIC = "logistic"
"""Binary logistic regression, which is no network: its gradient is in closed form."""
