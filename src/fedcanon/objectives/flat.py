"""A module's parameters as one contiguous vector."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedcanon.errors import FedcanonError
from fedcanon.layout import Layout
from fedcanon.objectives.reordered import reordered


class FlatModule:
    """Binds an ``nn.Module`` to one vector of parameters and one vector of gradients.

    Every trainable parameter becomes a view into ``vector`` and its gradient a view into ``grad``.
    So ``backward()`` fills ``grad``, an update of ``vector`` updates the module, and a step copies
    nothing. Tied parameters appear once, under their first name. Frozen ones (``requires_grad``
    off) stay where they are. Floating-point buffers, such as running means and variances, are
    views into ``buffers``. Precision and device are the module's own. ``network`` has the module's
    layers and gives the same results, perhaps in less time.

    Args:
        module: The module, which is changed: its parameters now lie in ``vector``.

    Raises:
        FedcanonError: The module has no trainable parameter, its parameters differ in precision or
            device, or a normalisation layer has no momentum.
    """

    def __init__(self, module: nn.Module) -> None:
        parameters = {n: p for n, p in module.named_parameters() if p.requires_grad}
        if not parameters:
            raise FedcanonError("the model has no trainable parameter.")
        self.module, self.network = module, reordered(module)
        self.parameters = list(parameters.values())
        self.layout = Layout.of((name, tuple(p.shape)) for name, p in parameters.items())
        self.vector = _concatenate(self.parameters)
        self.grad = torch.zeros_like(self.vector)
        self._bind_parameters()
        self.buffers = self._bind_buffers()

    def __reduce__(self) -> tuple[type[FlatModule], tuple[nn.Module]]:
        """A copy, in this process or another, is its module bound anew."""
        return FlatModule, (self.module,)

    def to(self, device: torch.device) -> FlatModule:
        """A copy of the module on another device, bound there."""
        return FlatModule(copy.deepcopy(self.module).to(device))

    def _bind_parameters(self) -> None:
        self.pieces, self.grad_pieces = self.layout.split(self.vector), self.layout.split(self.grad)
        views = zip(self.parameters, self.pieces, self.grad_pieces, strict=True)
        for parameter, piece, grad_piece in views:
            parameter.data, parameter.grad = piece, grad_piece

    def _bind_buffers(self) -> Tensor:
        for name, owner in self.module.named_modules():
            if isinstance(owner, nn.modules.batchnorm._NormBase) and owner.momentum is None:
                raise FedcanonError(
                    f"the layer {name} has momentum=None: a running average over all batches "
                    "cannot be averaged over clients; give it a momentum."
                )
        owners = [
            (owner, name, buffer)
            for owner in self.module.modules()
            for name, buffer in owner.named_buffers(recurse=False)
            if buffer.is_floating_point()
        ]
        if not owners:
            return self.vector.new_empty(0)
        buffers = _concatenate([buffer for _, _, buffer in owners])
        layout = Layout.of((name, tuple(buffer.shape)) for _, name, buffer in owners)
        for slot, (owner, name, _) in zip(layout, owners, strict=True):
            setattr(owner, name, slot.view(buffers))
        return buffers

    def gradients(self, loss: Tensor) -> tuple[Tensor, ...]:
        """The gradient of ``loss`` with respect to every parameter, in tensors of their own.

        This leaves ``grad`` alone and saves the two passes over it that ``backward()`` takes.
        """
        return torch.autograd.grad(loss, self.parameters, allow_unused=True, materialize_grads=True)

    def load(self, x: Tensor) -> None:
        """Make ``x`` the module's parameters, which costs nothing if ``x`` is ``vector``."""
        if x.data_ptr() != self.vector.data_ptr():
            self.vector.copy_(x)
        first = self.parameters[0]
        if first.grad is None or first.data_ptr() != self.vector.data_ptr():
            self._bind_parameters()  # someone called zero_grad() or moved the module


def _concatenate(tensors: Sequence[Tensor]) -> Tensor:
    kinds = {(tensor.dtype, tensor.device) for tensor in tensors}
    if len(kinds) > 1:
        found = ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds))
        raise FedcanonError(
            f"a model's parameters must share one precision and one device, found {found}."
        )
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
