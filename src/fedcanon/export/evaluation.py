"""The loss and accuracy of a trained network on some data."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcanon.data import Split
from fedcanon.objectives.losses import Loss

CHUNK = 1024
"""How many samples pass through a network at once."""


@dataclass(frozen=True)
class EvaluationByClass:
    """Loss and accuracy of a network.

    ``loss`` is the mean over the samples; ``samples`` holds the number of samples of each class and
    ``correct`` how many of them the network classified correctly.
    """

    loss: float
    samples: Tensor
    correct: Tensor

    @property
    def accuracy(self) -> float:
        """The share of samples that were classified correctly."""
        return float(self.correct.sum() / self.samples.sum())


def evaluate(
    module: nn.Module, split: Split, classes: int, loss: Loss = functional.cross_entropy
) -> EvaluationByClass:
    """Measure a network on some samples.

    Args:
        module: The network, in evaluation mode.
        split: The samples.
        classes: The number of classes.
        loss: What is measured beside the accuracy.
    """
    parameter = next(module.parameters())
    inputs, targets = split.tensors(parameter.dtype, parameter.device)
    if isinstance(module, nn.Linear):
        inputs = inputs.flatten(1)
    with torch.no_grad():
        scores = torch.cat([module(chunk) for chunk in torch.split(inputs, CHUNK)])
    if scores.shape[1] == 1:  # logistic regression scores the second class, against 0
        scores = torch.cat([torch.zeros_like(scores), scores], 1)
    right = targets[scores.argmax(1) == targets]
    return EvaluationByClass(
        float(loss(scores, targets)),
        targets.bincount(minlength=classes),
        right.bincount(minlength=classes),
    )
