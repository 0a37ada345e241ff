"""Several clients' gradients as one batched computation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedcanon.layout import Layout
from fedcanon.objectives.module import ModuleClients

_LAYERS = (nn.Sequential, nn.Flatten, nn.Linear, nn.ReLU, nn.GELU, nn.SiLU, nn.Sigmoid, nn.Tanh)
"""Layers without random numbers and statistics, that are linear or act entry by entry."""


class StackedModule:
    """∇f_i for n clients that share one network, each at a row of an n×d matrix.

    A layer of all clients is one batched matrix product. Activations are n×features×batch, in which
    order the products of forward and backward pass and the softmax are several times as fast as in
    the usual one.
    """

    def __init__(self, clients: ModuleClients, members: Sequence[int]) -> None:
        self._layers = list(_leaves(clients.flat.module))
        self._inputs, self._targets = clients.inputs, clients.targets
        self._first = torch.tensor([clients.offsets[client] for client in members])[:, None]
        vector = clients.flat.vector
        self.vector = vector.new_empty(len(members), len(vector))
        self._gradient = torch.empty_like(self.vector)
        self._parameters = _views(clients.flat.layout, self.vector)
        for parameter in self._parameters.values():
            parameter.requires_grad_()
        self._gradients = list(_views(clients.flat.layout, self._gradient).values())

    def gradient(self, x: Tensor, batch: Tensor, weights: Tensor) -> Tensor:
        """Row i: the gradient of Σ_j weights[i, j]·loss(sample batch[i, j] of client i) at x[i].

        The result may be written to by the caller and is valid until the next call.
        """
        if x.data_ptr() != self.vector.data_ptr():
            self.vector.copy_(x)
        rows = (batch + self._first).flatten()
        inputs = self._inputs.index_select(0, rows).view(*batch.shape, -1)
        targets = self._targets.index_select(0, rows).view(batch.shape)
        losses = cross_entropy(self._outputs(inputs), targets, reduction="none")
        found = torch.autograd.grad(losses, list(self._parameters.values()), weights)
        torch._foreach_copy_(self._gradients, found)
        return self._gradient

    def _outputs(self, inputs: Tensor) -> Tensor:
        """Features of all samples, n×features×batch, after the last layer."""
        h = inputs.transpose(1, 2)
        for name, layer in self._layers:
            if not isinstance(layer, nn.Linear):
                h = layer(h)
                continue
            h = torch.bmm(self._parameters[f"{name}.weight"], h)
            if f"{name}.bias" in self._parameters:
                h = h + self._parameters[f"{name}.bias"][:, :, None]
        return h


def _leaves(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The layers in their order, without the flattening of inputs, which are flat already."""
    for name, layer in module.named_modules():
        if not isinstance(layer, nn.Sequential | nn.Flatten):
            yield name, layer


def _views(layout: Layout, rows: Tensor) -> dict[str, Tensor]:
    return {
        slot.name: rows[:, slot.offset : slot.offset + slot.size].view(-1, *slot.shape)
        for slot in layout
    }


def can_stack(clients: object) -> bool:
    """Whether the gradients of these clients can be computed together, whatever it costs."""
    return (
        isinstance(clients, ModuleClients)
        and not clients.augment
        and _is_plain(clients.loss)
        and type(clients.flat.module) is nn.Sequential
        and all(type(layer) in _LAYERS for layer in clients.flat.module.modules())
        and all(p.requires_grad for p in clients.flat.module.parameters())
        and _flattens_first(clients.flat.module)
    )


def _flattens_first(module: nn.Sequential) -> bool:
    """Whether only the inputs are flattened, and they are."""
    kinds = [type(layer) for _, layer in module.named_modules()]
    leaves = [kind for kind in kinds if kind is not nn.Sequential]
    return leaves[0] is nn.Flatten and nn.Flatten not in leaves[1:]


def _is_plain(loss: object) -> bool:
    """Whether it is the mean cross-entropy without weights or smoothing."""
    return (
        type(loss) is nn.CrossEntropyLoss
        and loss.weight is None
        and loss.label_smoothing == 0
        and loss.reduction == "mean"
    )
