"""A module, a loss and one client's data as an objective."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Self, overload

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from fedcanon.errors import FedcanonError
from fedcanon.objectives.affine import affine_hessian, single_layer
from fedcanon.objectives.augment import AUGMENTATIONS, Augmentation
from fedcanon.objectives.base import NO_HESSIAN, NO_RECORDS, Objective
from fedcanon.objectives.clipping import ROOM, clipped_total, single_gradients
from fedcanon.objectives.compiled_steps import descend_, worth_compiling
from fedcanon.objectives.flat import FlatModule
from fedcanon.objectives.losses import Loss
from fedcanon.objectives.perceptron import Batch, Perceptron, PerceptronAt, perceptron_of

WORTH_BATCHING = 50_000
"""Up to so many parameters, a CPU computes the gradients of several records faster together."""

WORTH_CUTTING = 1024
"""The fewest test samples that are worth a process, a multiple of ``ModuleObjective.chunk``."""


@dataclass(eq=False, repr=False)
class ModuleClients(Sequence["ModuleObjective"]):
    """Clients that share one network, their samples one after the other in the same tensors.

    A client's objective is made when it is asked for, so that 100,000 of them take no memory.

    Args:
        flat: The network.
        loss: The mean loss over a batch, from outputs and targets.
        inputs: The inputs of all clients.
        targets: The label of each input.
        sizes: How many samples each client has.
        augment: What is done to the inputs of a batch in local steps, in this order.
        bfloat16: Whether local steps compute their products in that precision.
        whole: Whether the loss is no mean over samples; see ``ModuleObjective``.
    """

    flat: FlatModule
    loss: Loss
    inputs: Tensor
    targets: Tensor
    sizes: Sequence[int]
    augment: Sequence[Augmentation] = ()
    bfloat16: bool = field(default=False, kw_only=True)
    whole: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        slow = self.bfloat16 or self.whole
        self.perceptron = None if slow else perceptron_of(self.flat.module, self.loss)
        self.offsets = list(accumulate(self.sizes, initial=0))

    def to(self, device: torch.device) -> ModuleClients:
        """The same clients with their data and their network on another device."""
        moved = copy.copy(self)
        moved.flat = self.flat.to(device)
        moved.inputs, moved.targets = self.inputs.to(device), self.targets.to(device)
        return moved

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
        return ModuleObjective(
            self.flat,
            self.loss,
            self.inputs[own],
            self.targets[own],
            augment=self.augment,
            bfloat16=self.bfloat16,
            whole=self.whole,
            perceptron=self.perceptron,
        )

    def measured(
        self, x: Tensor, clients: range, weights: Sequence[float] = ()
    ) -> tuple[list[float], Tensor]:
        """f_i(x) of neighbouring clients, with one pass of the network over all their samples.

        The loss must be plain cross-entropy.

        Args:
            x: The parameters.
            clients: The clients.
            weights: A number w_i for each client, if Σ w_i ∇f_i(x) is needed too.

        Returns:
            The f_i(x), and that sum, a new tensor.
        """
        own = slice(self.offsets[clients.start], self.offsets[clients.stop])
        lengths = torch.tensor(self.sizes[clients.start : clients.stop])
        shares = (torch.tensor(weights or [0.0] * len(clients)) / lengths).to(x)
        shares = shares.repeat_interleave(lengths.to(x.device))
        together = ModuleObjective(self.flat, self.loss, self.inputs[own], self.targets[own])
        self.flat.grad.zero_()
        found = list[Tensor]()
        with torch.set_grad_enabled(bool(weights)):
            for outputs, targets, _ in together._evaluated(x):
                losses = functional.cross_entropy(outputs, targets, reduction="none")
                own_shares, shares = shares[: len(losses)], shares[len(losses) :]
                if weights:
                    (losses @ own_shares).backward()  # type: ignore[no-untyped-call]
                found.append(losses.detach().cpu())
        means = torch.segment_reduce(torch.cat(found), "mean", lengths=lengths)
        return means.tolist(), self.flat.grad.clone()


class ModuleObjective(Objective):
    """f_i(x) = loss(module_x(inputs), targets), the mean loss over the client's samples.

    Gradients for local steps are taken in training mode. The exact value and gradient are taken in
    evaluation mode, where inputs are as they are, normalisation uses its running statistics and f_i
    is one well-defined function. They pass over the data in chunks, which is right for a mean over
    samples only: a ``Problem`` tries that with its clients' losses, and refuses others unless they
    are declared with ``whole``.

    Args:
        flat: The network, which the clients of a process share.
        loss: The mean loss over a batch, from outputs and targets, as PyTorch's losses are.
        inputs: The inputs of this client, or of several.
        targets: The label of each input.
        rows: Which samples are this client's; None stands for all.
        augment: What is done to the inputs of a batch in every local step, in this order.
        bfloat16: Whether local steps compute their products in that precision. Parameters and
            gradients keep theirs.
        whole: Whether the loss is no mean over samples, such as Cox's partial likelihood. It is
            then always called with all samples of the client, which must fit into memory at once,
            and mini-batches, the privacy of records and Hessians are refused.
        perceptron: The same network in a form that computes gradients faster than autograd.
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
        *,
        bfloat16: bool = False,
        whole: bool = False,
        perceptron: Perceptron | None = None,
    ) -> None:
        self.layout, self.whole = flat.layout, whole
        self._bfloat16, self._perceptron = bfloat16, perceptron
        self._last: tuple[Tensor, PerceptronAt] | None = None
        self.samples = len(inputs if rows is None else rows)
        self._flat, self.loss, self._augment = flat, loss, augment
        self._inputs, self.targets, self._rows = inputs, targets, rows

    @property
    def draws(self) -> bool:
        return self._perceptron is None or bool(self._augment)

    @property
    def buffers(self) -> Tensor:
        return self._flat.buffers

    def of(self, flat: FlatModule) -> Self:
        """The same samples with another copy of the network, on its device."""
        moved, device = copy.copy(self), flat.vector.device
        moved._flat = flat
        moved._inputs, moved.targets = self._inputs.to(device), self.targets.to(device)
        return moved

    def over_some(self, count: int, rng: np.random.Generator) -> ModuleObjective:
        if self.whole or self.samples <= count:
            return self
        chosen = torch.from_numpy(np.sort(rng.choice(self.samples, count, replace=False)))
        thinned, rows = copy.copy(self), chosen if self._rows is None else self._rows[chosen]
        thinned._rows, thinned.samples = rows, count
        return thinned

    def module(self, x: Tensor, buffers: Tensor) -> nn.Module:
        copied = copy.deepcopy(self._flat)
        copied.load(x)
        copied.buffers.copy_(buffers)
        return copied.module.eval()

    def workspace(self, start: Tensor) -> Tensor:
        if self._perceptron is not None:
            return start.clone()
        self._flat.load(start)
        return self._flat.vector

    def taken_out(self, workspace: Tensor) -> Tensor:
        return workspace if self._perceptron is not None else workspace.clone()

    def scored(self, count: int, few: int) -> tuple[Tensor, Tensor]:
        """Scores and targets of up to ``count`` samples from all over the client's data.

        The scores are what the network as it is says of the first ``few`` samples, repeated.
        """
        count = min(self.samples, count)
        targets = self._at(torch.arange(count) * self.samples // count)[1]
        self._flat.module.eval()
        with torch.no_grad():
            scores = self._flat.module(self._at(slice(0, few))[0])
        return scores[torch.arange(count, device=scores.device) % len(scores)], targets

    def _at(self, batch: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Inputs and targets of the client's samples at these positions."""
        rows = batch if self._rows is None else self._rows[batch]
        if isinstance(rows, slice):
            return self._inputs[rows], self.targets[rows]
        rows = rows.to(self._inputs.device)
        # On a CPU this takes half the time of inputs[rows].
        return self._inputs.index_select(0, rows), self.targets.index_select(0, rows)

    def _gradients(self, x: Tensor, batch: Tensor | None) -> tuple[Tensor, ...]:
        """The gradient over a mini-batch, parameter by parameter."""
        network = self._flat.network
        if not network.training:
            network.train()
        self._flat.load(x)
        inputs, targets = self._changed(batch)
        if not self._bfloat16:
            return self._flat.gradients(self.loss(network(inputs), targets))
        with torch.autocast(x.device.type, torch.bfloat16):
            loss = self.loss(network(inputs), targets)
        return self._flat.gradients(loss)

    def _changed(self, batch: Tensor | None) -> tuple[Tensor, Tensor]:
        """Inputs and targets of a mini-batch, as a local step sees them."""
        if self.whole and batch is not None:
            raise FedcanonError(
                "a loss that is no mean over samples has no mini-batches: use all samples of a "
                'client in every step (batch_size=None, or "full" in a configuration).'
            )
        inputs, targets = self._at(slice(None) if batch is None else batch)
        for change in self._augment:
            inputs = change(inputs)
        return inputs, targets

    def _batch(self, batch: Tensor | None) -> Batch:
        inputs, targets = self._changed(batch)
        return Batch(inputs.flatten(1), targets, 1 / len(inputs))

    def gradient(self, x: Tensor, batch: Tensor | None) -> Tensor:
        flat = self._flat
        if self._perceptron is None:
            found = list(self._gradients(x, batch))
        else:
            found = self._with(self._perceptron, x).gradient(self._batch(batch))
        torch._foreach_copy_(flat.grad_pieces, found)
        return flat.grad

    def descend_(
        self,
        x: Tensor,
        batches: Sequence[Tensor | None],
        step: float,
        shift: Tensor | None = None,
    ) -> None:
        some = [batch for batch in batches if batch is not None]
        if self._perceptron is None or self._augment or not some or not worth_compiling(x):
            super().descend_(x, batches, step, shift)
            return
        rows, size = torch.stack(some), torch.tensor([len(some[0])])
        rows = (rows if self._rows is None else self._rows[rows])[:, None]
        data = self._inputs, self.targets, rows, size
        descend_(self._perceptron, self.layout, x[None], *data, step, shift)

    def _step_(self, x: Tensor, batch: Tensor | None, step: float) -> None:
        if self._perceptron is None:
            torch._foreach_add_(self._pieces(x), self._gradients(x, batch), alpha=-step)
        else:
            self._with(self._perceptron, x).descend_(self._batch(batch), step)

    def require_records(self) -> None:
        if self.whole:
            raise FedcanonError(NO_RECORDS)
        modules = self._flat.module.modules()
        if len(self.buffers) or any(isinstance(each, _BatchNorm) for each in modules):
            raise FedcanonError(
                "a network with batch normalisation or other running statistics has no gradients "
                "of single records, because these would enter the statistics without noise: use "
                'group normalisation, such as model.norm = "group".'
            )
        if not all(each in AUGMENTATIONS.values() for each in self._augment):
            raise FedcanonError(
                "an augmentation of your own may mix records with each other, which cannot be "
                f"kept private: use those of the project ({', '.join(AUGMENTATIONS)}), or none."
            )

    def clipped_sum(self, x: Tensor, batch: Tensor | None, bound: float) -> Tensor:
        self.require_records()
        records = torch.arange(self.samples) if batch is None else batch
        total = torch.zeros_like(x)
        pieces = self._flat.layout.split(total)
        together = self._records_at_once
        for start in range(0, len(records), together):
            some = records[start : start + together]
            torch._foreach_add_(pieces, self._clipped(x, some, bound))
        return total

    @property
    def _records_at_once(self) -> int:
        """How many records have their gradients in memory together."""
        if self._perceptron is not None:  # which needs no gradient of a single one
            return self.samples
        vector = self._flat.vector
        if vector.device.type == "cpu" and len(vector) > WORTH_BATCHING:
            return 1
        return max(1, min(self.chunk, ROOM // (len(vector) * vector.element_size())))

    def _clipped(self, x: Tensor, batch: Tensor, bound: float) -> list[Tensor]:
        """The sum of the clipped gradients of some records, parameter by parameter."""
        if self._perceptron is not None:
            inputs, targets = self._changed(batch)
            single = Batch(inputs.flatten(1), targets, 1.0)
            return self._with(self._perceptron, x).clipped_sum(single, bound)
        if len(batch) == 1:
            return clipped_total([each[None] for each in self._gradients(x, batch)], bound)
        return clipped_total(self._single_gradients(x, batch), bound)

    def _single_gradients(self, x: Tensor, batch: Tensor) -> Sequence[Tensor]:
        """The gradients of some records, parameter by parameter, a row for each record."""
        inputs, targets = self._changed(batch)
        self._flat.network.train()
        gradients = single_gradients(self._flat, self.loss)
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self._bfloat16):
            return gradients(self._pieces(x), inputs, targets)

    def _pieces(self, x: Tensor) -> list[Tensor]:
        """The parameters inside a vector, as views."""
        return self._flat.pieces if x is self._flat.vector else self._flat.layout.split(x)

    def _with(self, perceptron: Perceptron, x: Tensor) -> PerceptronAt:
        """The network with the parameters inside a vector; that of the last is kept at hand."""
        if self._last is None or x is not self._last[0]:
            self._last = x, perceptron.at(self._pieces(x))
        return self._last[1]

    def _evaluated(
        self, x: Tensor, samples: slice = slice(None)
    ) -> Iterator[tuple[Tensor, Tensor, float]]:
        """Outputs and targets of the samples in chunks, each with its share of all samples."""
        self._flat.network.eval()
        self._flat.load(x)
        chunk = self.samples if self.whole else self.chunk
        positions = range(self.samples)[samples]
        for start in positions[::chunk]:
            inputs, targets = self._at(slice(start, min(start + chunk, positions.stop)))
            yield self._flat.network(inputs), targets, len(inputs) / self.samples

    def outputs(self, x: Tensor, samples: slice = slice(None)) -> Tensor:
        """What the network says of these samples, in evaluation mode."""
        with torch.no_grad():
            return torch.cat([outputs for outputs, _, _ in self._evaluated(x, samples)])

    def value(self, x: Tensor) -> float:
        with torch.no_grad():
            return sum(
                share * float(self.loss(outputs, targets))
                for outputs, targets, share in self._evaluated(x)
            )

    def value_and_gradient(self, x: Tensor) -> tuple[float, Tensor]:
        self._flat.grad.zero_()
        value = 0.0
        for outputs, targets, share in self._evaluated(x):
            loss = share * self.loss(outputs, targets)
            loss.backward()  # type: ignore[no-untyped-call]
            value += float(loss.detach())
        return value, self._flat.grad.clone()

    @property
    def has_hessian(self) -> bool:
        return not self.whole and single_layer(self._flat.module) is not None

    def hessian(self, x: Tensor) -> Tensor:
        layer = single_layer(self._flat.module)
        if layer is None or self.whole:
            raise FedcanonError(NO_HESSIAN)
        self._flat.load(x)
        inputs, targets = self._at(slice(None))
        return affine_hessian(layer, self.loss, inputs.flatten(1), targets)


@dataclass(frozen=True)
class ModuleTest:
    """Loss and accuracy of a classifier on samples that no client has, those of ``held_out``."""

    held_out: ModuleObjective

    def of(self, flat: FlatModule) -> ModuleTest:
        """The same test of another copy of the network, on its device."""
        return ModuleTest(self.held_out.of(flat))

    def parts(self, most: int) -> list[slice]:
        """The samples in at most so many parts, whose outputs have the same bits as all at once."""
        samples = max(1, self.held_out.samples)
        least = samples if self.held_out.whole else WORTH_CUTTING
        length = -(-samples // (most * least)) * least
        return [slice(start, start + length) for start in range(0, samples, length)]

    def __call__(self, x: Tensor) -> dict[str, float]:
        """``{"test_loss": …, "accuracy": …}`` at ``x``."""
        return self.measures(self.held_out.outputs(x))

    def measures(self, outputs: Tensor) -> dict[str, float]:
        """The same from what the network says of all samples."""
        targets = self.held_out.targets
        correct = (outputs.argmax(1) == targets).double().mean()
        loss = float(self.held_out.loss(outputs, targets))
        return {"test_loss": loss, "accuracy": float(correct)}
