"""Networks of the comparison that the library does not have."""

from __future__ import annotations

from math import prod

from torch import nn


def deep(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Four linear layers with ReLU, 100 neurons in each hidden one."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(prod(shape), 100),
        nn.ReLU(),
        nn.Linear(100, 100),
        nn.ReLU(),
        nn.Linear(100, 100),
        nn.ReLU(),
        nn.Linear(100, classes),
    )


def small_cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two 5×5 convolutions of stride 2 (6 and 12 channels) and a linear layer, for 28×28 pixels."""
    return nn.Sequential(
        nn.Conv2d(shape[0], 6, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(6, 12, 5, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(12 * 4 * 4, classes),
    )
