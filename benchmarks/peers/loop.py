"""Local training as a careful person writes it, for the bare loop and for Flower's clients."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, repeat

import torch
from peers.common import BATCH, RATE, STEPS
from torch import Tensor, nn

Data = tuple[Tensor, Tensor]


def mlp() -> nn.Module:
    layers = nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10)
    return nn.Sequential(nn.Flatten(), *layers)


def batches(inputs: Tensor, labels: Tensor) -> Iterator[Data]:
    samples = len(labels)
    if samples <= BATCH:
        yield from repeat((inputs, labels))
    while True:
        for rows in torch.randperm(samples)[: samples - samples % BATCH].split(BATCH):
            yield inputs.index_select(0, rows), labels.index_select(0, rows)


def descend(model: nn.Module, data: Data) -> None:
    parameters = list(model.parameters())
    for inputs, labels in islice(batches(*data), STEPS):
        loss = nn.functional.cross_entropy(model(inputs), labels)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.add_(gradient, alpha=-RATE)
