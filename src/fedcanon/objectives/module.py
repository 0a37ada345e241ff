"""A module, a loss and one client's data as an objective."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from fedcanon.objectives.base import Objective
from fedcanon.objectives.flat import FlatModule

Loss = Callable[[Tensor, Tensor], Tensor]


class ModuleObjective(Objective):
    """f_i(x) = mean over the client's samples of loss(module_x(input), target).

    ``loss(outputs, targets)`` returns the mean over a batch, as PyTorch's losses do. All clients
    share one ``FlatModule``, one tensor of inputs and one of targets; ``rows`` says which samples
    are this client's (all where it is None). Mini-batch gradients are taken in training mode;
    the exact value and gradient in evaluation mode, where normalisation uses its running
    statistics and f_i is one well-defined function. They pass over the data in chunks.
    """

    chunk = 4096

    def __init__(
        self,
        flat: FlatModule,
        loss: Loss,
        inputs: Tensor,
        targets: Tensor,
        rows: Tensor | None = None,
    ) -> None:
        self.layout = flat.layout
        self.samples = len(inputs if rows is None else rows)
        self._flat, self._loss = flat, loss
        self._inputs, self._targets, self._rows = inputs, targets, rows

    @property
    def buffers(self) -> Tensor:
        return self._flat.buffers

    def workspace(self, start: Tensor) -> Tensor:
        self._flat.load(start)
        return self._flat.vector

    def _batch(self, batch: Tensor | None) -> tuple[Tensor, Tensor]:
        rows = self._rows
        if batch is not None:
            rows = batch if rows is None else rows[batch]
        if rows is None:
            return self._inputs, self._targets
        return self._inputs[rows], self._targets[rows]

    def gradient(self, x: Tensor, batch: Tensor | None) -> Tensor:
        module = self._flat.module
        if not module.training:
            module.train()
        self._flat.load(x)
        self._flat.grad.zero_()
        inputs, targets = self._batch(batch)
        self._loss(module(inputs), targets).backward()  # type: ignore[no-untyped-call]
        return self._flat.grad

    def _chunks(self) -> Iterator[tuple[Tensor, Tensor, float]]:
        """The client's samples in pieces, each with its share of them."""
        everything = torch.arange(self.samples, device=self._inputs.device)
        for positions in torch.split(everything, self.chunk):
            yield *self._batch(positions), len(positions) / self.samples

    def value(self, x: Tensor) -> float:
        self._flat.module.eval()
        self._flat.load(x)
        with torch.no_grad():
            return sum(
                share * float(self._loss(self._flat.module(inputs), targets))
                for inputs, targets, share in self._chunks()
            )

    def value_and_gradient(self, x: Tensor) -> tuple[float, Tensor]:
        self._flat.module.eval()
        self._flat.load(x)
        self._flat.grad.zero_()
        value = 0.0
        for inputs, targets, share in self._chunks():
            loss = share * self._loss(self._flat.module(inputs), targets)
            loss.backward()  # type: ignore[no-untyped-call]
            value += float(loss.detach())
        return value, self._flat.grad.clone()
