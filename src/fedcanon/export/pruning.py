"""Removes the neurons and channels of a network that do not change its outputs."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import nn

from fedcanon.errors import FedcanonError, first_line
from fedcanon.export.links import Link, TracedNetwork
from fedcanon.export.operations import Shape
from fedcanon.export.surgery import (
    by_unit,
    fold,
    keep_units,
    merge,
    pads_with_zeros,
    repeated,
)


def prune(module: nn.Module, example_shape: Shape) -> nn.Module:
    """A smaller copy of a network with the same outputs in evaluation mode.

    A unit (a neuron or a channel) is removed if all its outgoing weights are zero. It is also
    removed if all its incoming weights are zero: what it sends is then the same for every input,
    and is added to the bias of the next layer. A bias cannot replace it before a convolution that
    pads with zeros, because the border would differ: there, one such unit replaces all of them.
    This repeats until nothing changes; every layer keeps at least one unit. Units stay that are
    added to others (residual connections) or mixed with others before they reach the next layer
    (group normalisation).

    Args:
        module: The network.
        example_shape: The shape of one input.

    Returns:
        The copy, in evaluation mode. In training mode the statistics of batches would differ.

    Raises:
        FedcanonError: Torch.fx cannot follow the network, or the copy has other outputs.
    """
    original = deepcopy(module).eval()
    pruned = deepcopy(original)
    links = TracedNetwork(pruned, example_shape).links()
    with torch.no_grad():
        while sum(_shrink(link) for link in reversed(links)):
            pass  # removing a unit can make one of another layer superfluous
    _require_same(original, pruned, example_shape)
    return pruned


def unused_inputs(module: nn.Module, example_shape: Shape) -> list[int]:
    """The inputs of a network whose weights are all zero; channels before a convolution.

    Args:
        module: The network.
        example_shape: The shape of one input.

    Raises:
        FedcanonError: Torch.fx cannot follow the network.
    """
    layer = TracedNetwork(deepcopy(module).eval(), example_shape).first_layer()
    if layer is None:
        return []
    return (~layer.weight.transpose(0, 1).flatten(1).any(1)).nonzero().flatten().tolist()


def _shrink(link: Link) -> bool:
    """Remove the units of a link that do nothing; true if there were any."""
    units = len(link.producer.weight)
    sent = link.constants()
    per_unit = sent.view(units, -1)
    dead = ~by_unit(link.consumer.weight, units).transpose(0, 1).flatten(1).any(1)
    constant = ~link.producer.weight.flatten(1).any(1) & per_unit.isfinite().all(1) & ~dead
    if pads_with_zeros(link.consumer):
        silent = constant & (per_unit == 0).all(1)
        gone = dead | silent | merge(link.consumer, constant & ~silent, sent)
        constant = silent
    else:
        gone = dead | constant
    if gone.all():  # a layer needs at least one unit
        gone[0] = constant[0] = False
    if gone.any():
        fold(link.consumer, sent.where(repeated(constant, len(sent)), 0))
        keep_units(link, ~gone)
    return bool(gone.any())


def _require_same(module: nn.Module, pruned: nn.Module, example_shape: Shape) -> None:
    """Raise a FedcanonError if a copy has other outputs: torch.fx does not see everything."""
    like = next(module.parameters())
    inputs = torch.randn(8, *example_shape, generator=torch.Generator().manual_seed(0)).to(like)
    with torch.no_grad():
        expected = module(inputs)
        try:
            found = pruned(inputs)
        except Exception as error:  # whatever the forward of a network raises
            raise FedcanonError(f"the pruned network fails: {first_line(error)}.") from error
    allowed = torch.finfo(like.dtype).eps ** 0.5 * max(1.0, float(expected.abs().max()))
    if not torch.allclose(found, expected, rtol=0, atol=allowed):
        raise FedcanonError("the pruned network has other outputs.")
