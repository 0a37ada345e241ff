"""A module, a loss and one client's data as an objective."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import overload

import torch
from torch import Tensor, nn

from fedcanon.objectives.augment import Augmentation
from fedcanon.objectives.base import Objective
from fedcanon.objectives.flat import FlatModule

Loss = Callable[[Tensor, Tensor], Tensor]


class ModuleClients(Sequence["ModuleObjective"]):
    """Clients that share one network, their samples one after the other in the same tensors.

    A client's objective is made when it is asked for, so that 100,000 of them take no memory.
    """

    def __init__(
        self,
        flat: FlatModule,
        loss: Loss,
        inputs: Tensor,
        targets: Tensor,
        sizes: Sequence[int],
        augment: Sequence[Augmentation] = (),
    ) -> None:
        self.flat, self.loss, self.augment = flat, loss, augment
        self.inputs, self.targets = inputs, targets
        self.offsets = list(accumulate(sizes, initial=0))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, client: int) -> ModuleObjective: ...
    @overload
    def __getitem__(self, client: slice) -> Sequence[ModuleObjective]: ...
    def __getitem__(self, client: int | slice) -> ModuleObjective | Sequence[ModuleObjective]:
        if isinstance(client, slice):
            return [self[one] for one in range(len(self))[client]]
        client = range(len(self))[client]
        own = slice(self.offsets[client], self.offsets[client + 1])
        inputs, targets = self.inputs[own], self.targets[own]
        return ModuleObjective(self.flat, self.loss, inputs, targets, augment=self.augment)


class ModuleObjective(Objective):
    """f_i(x) = mean over the client's samples of loss(module_x(input), target).

    ``loss(outputs, targets)`` returns the mean over a batch, as PyTorch's losses do. All clients
    share one ``FlatModule``, one tensor of inputs and one of targets; ``rows`` says which samples
    are this client's (all where it is None). Gradients for local steps are taken in training mode
    and on inputs that every step passes through ``augment`` anew; the exact value and gradient in
    evaluation mode, where inputs are as they are, normalisation uses its running statistics and
    f_i is one well-defined function. They pass over the data in chunks.
    """

    chunk = 256  # of larger ones a convolutional network's activations leave the cache

    def __init__(
        self,
        flat: FlatModule,
        loss: Loss,
        inputs: Tensor,
        targets: Tensor,
        rows: Tensor | None = None,
        augment: Sequence[Augmentation] = (),
    ) -> None:
        self.layout = flat.layout
        self.samples = len(inputs if rows is None else rows)
        self._flat, self.loss, self._augment = flat, loss, augment
        self._inputs, self.targets, self._rows = inputs, targets, rows

    @property
    def buffers(self) -> Tensor:
        return self._flat.buffers

    def module(self, x: Tensor, buffers: Tensor) -> nn.Module:
        copied = copy.deepcopy(self._flat)
        copied.load(x)
        copied.buffers.copy_(buffers)
        return copied.module.eval()

    def workspace(self, start: Tensor) -> Tensor:
        self._flat.load(start)
        return self._flat.vector

    def _at(self, batch: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Inputs and targets of the client's samples at these positions."""
        rows = batch if self._rows is None else self._rows[batch]
        if isinstance(rows, slice):
            return self._inputs[rows], self.targets[rows]
        rows = rows.to(self._inputs.device)
        # On a CPU this takes half the time of inputs[rows].
        return self._inputs.index_select(0, rows), self.targets.index_select(0, rows)

    def gradient(self, x: Tensor, batch: Tensor | None) -> Tensor:
        module = self._flat.module
        if not module.training:
            module.train()
        self._flat.load(x)
        self._flat.grad.zero_()
        inputs, targets = self._at(slice(None) if batch is None else batch)
        for change in self._augment:
            inputs = change(inputs)
        self.loss(module(inputs), targets).backward()  # type: ignore[no-untyped-call]
        return self._flat.grad

    def _chunks(self) -> Iterator[tuple[Tensor, Tensor, float]]:
        """The client's samples in pieces, each with its share of them."""
        for start in range(0, self.samples, self.chunk):
            inputs, targets = self._at(slice(start, start + self.chunk))
            yield inputs, targets, len(inputs) / self.samples

    def outputs(self, x: Tensor) -> Tensor:
        """What the network says of all samples, in evaluation mode."""
        self._flat.module.eval()
        self._flat.load(x)
        with torch.no_grad():
            return torch.cat([self._flat.module(inputs) for inputs, _, _ in self._chunks()])

    def value(self, x: Tensor) -> float:
        self._flat.module.eval()
        self._flat.load(x)
        with torch.no_grad():
            return sum(
                share * float(self.loss(self._flat.module(inputs), targets))
                for inputs, targets, share in self._chunks()
            )

    def value_and_gradient(self, x: Tensor) -> tuple[float, Tensor]:
        self._flat.module.eval()
        self._flat.load(x)
        self._flat.grad.zero_()
        value = 0.0
        for inputs, targets, share in self._chunks():
            loss = share * self.loss(self._flat.module(inputs), targets)
            loss.backward()  # type: ignore[no-untyped-call]
            value += float(loss.detach())
        return value, self._flat.grad.clone()


@dataclass(frozen=True)
class ModuleTest:
    """Loss and accuracy of a classifier on samples that no client has."""

    held_out: ModuleObjective

    def __call__(self, x: Tensor) -> dict[str, float]:
        """``{"test_loss": …, "accuracy": …}`` at ``x``."""
        outputs, targets = self.held_out.outputs(x), self.held_out.targets
        correct = (outputs.argmax(1) == targets).double().mean()
        loss = float(self.held_out.loss(outputs, targets))
        return {"test_loss": loss, "accuracy": float(correct)}
