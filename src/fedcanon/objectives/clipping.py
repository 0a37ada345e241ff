"""Gradients of single records, clipped one by one and added up."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from fedcanon.objectives.flat import FlatModule
from fedcanon.objectives.losses import Loss
from fedcanon.units import MIB

ROOM = 64 * MIB
"""So many bytes of gradients of single records are in memory at a time."""

Gradients = Callable[[Sequence[Tensor], Tensor, Tensor], Sequence[Tensor]]
"""From the parameters, inputs and targets to the gradient of every record, by parameter."""


def clip_factors(squares: Tensor, bound: float) -> tuple[Tensor, Tensor]:
    """Return which gradients are finite, and by what to multiply each of those.

    Args:
        squares: The squared norm of every gradient.
        bound: The largest norm that is left as it is.
    """
    finite = squares.isfinite()
    return finite, (bound / squares[finite].sqrt()).clamp(max=1)


def clipped_total(gradients: Sequence[Tensor], bound: float) -> list[Tensor]:
    """Return the sum of gradients, each clipped to norm ``bound``, for each parameter.

    Args:
        gradients: For each parameter, a tensor whose first index is the record.
        bound: The largest norm of one summand.
    """
    squares = torch.stack([each.flatten(1).square().sum(1) for each in gradients]).sum(0)
    finite, factors = clip_factors(squares, bound)
    if not bool(finite.all()):
        gradients = [each[finite] for each in gradients]
    return [torch.tensordot(factors, each, 1) for each in gradients]


def single_gradients(flat: FlatModule, loss: Loss) -> Gradients:
    """Return what computes the gradients of single records of a network.

    Every record goes through the network by itself, as a batch of one.
    """
    places = _places(flat)

    def loss_of(parameters: Sequence[Tensor], one: Tensor, target: Tensor) -> Tensor:
        named = {name: parameters[place] for name, place in places.items()}
        # PyTorch's own way to tie weights leaves a module that is used twice with others.
        output = functional_call(flat.module, named, (one[None],), tie_weights=False)
        return loss(output, target[None])

    return vmap(grad(loss_of), in_dims=(None, 0, 0), randomness="different")


def _places(flat: FlatModule) -> dict[str, int]:
    """Which parameter of the flat vector is under every name, of which tied ones have several."""
    numbers = {id(parameter): place for place, parameter in enumerate(flat.parameters)}
    return {
        f"{prefix}.{name}".removeprefix("."): numbers[id(parameter)]
        for prefix, owner in flat.module.named_modules()
        for name, parameter in owner.named_parameters(recurse=False, remove_duplicate=False)
        if id(parameter) in numbers
    }
