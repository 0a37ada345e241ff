"""How well a trained network does on data."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedcanon.data import Split

CHUNK = 1024
"""Samples that pass through a network at once."""


@dataclass(frozen=True)
class Evaluation:
    """The mean loss, and for each class how many samples there are and how many were right."""

    loss: float
    samples: Tensor
    correct: Tensor

    @property
    def accuracy(self) -> float:
        """The share of samples whose class was found."""
        return float(self.correct.sum() / self.samples.sum())


def evaluate(module: nn.Module, split: Split, classes: int) -> Evaluation:
    """Cross-entropy and accuracy of a network in evaluation mode on some samples."""
    parameter = next(module.parameters())
    inputs, targets = split.tensors(parameter.dtype, parameter.device)
    if isinstance(module, nn.Linear):
        inputs = inputs.flatten(1)
    with torch.no_grad():
        scores = torch.cat([module(chunk) for chunk in torch.split(inputs, CHUNK)])
    if scores.shape[1] == 1:  # logistic regression scores the second class, against 0
        scores = torch.cat([torch.zeros_like(scores), scores], 1)
    right = targets[scores.argmax(1) == targets]
    return Evaluation(
        float(nn.functional.cross_entropy(scores, targets)),
        targets.bincount(minlength=classes),
        right.bincount(minlength=classes),
    )
