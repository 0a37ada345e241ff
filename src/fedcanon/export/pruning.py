"""Smaller networks with the same outputs: neurons and channels that do nothing are taken out."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import nn

from fedcanon.errors import FedcanonError
from fedcanon.export.links import Link, Trace
from fedcanon.export.messages import one_line
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
    """A copy without the neurons and channels that do nothing, with the same outputs.

    A unit goes if all its outgoing weights are zero. It also goes if all its incoming weights are
    zero: what it sends is then the same for every input, and the next layer's bias takes it over.
    The bias of a convolution that pads with zeros could not, because the border would differ: there
    one such unit does the work of all. This repeats until nothing is left to do, and one unit stays
    in each layer. Units that are added to others (residual connections), or mixed with
    others before they reach a layer (group normalisation), stay.

    ``example_shape`` is the shape of one input. The copy is in evaluation mode, as is the claim:
    in training mode, statistics of batches would differ.

    Raises:
        FedcanonError: torch.fx cannot follow the network.
    """
    original = deepcopy(module).eval()
    pruned = deepcopy(original)
    links = Trace(pruned, example_shape).links()
    with torch.no_grad():
        while sum(_shrink(link) for link in reversed(links)):
            pass  # what goes from one layer can leave a unit of another without purpose
    _require_same(original, pruned, example_shape)
    return pruned


def unused_inputs(module: nn.Module, example_shape: Shape) -> list[int]:
    """The inputs (channels of images before a convolution) whose weights are all zero.

    Raises:
        FedcanonError: torch.fx cannot follow the network.
    """
    layer = Trace(deepcopy(module).eval(), example_shape).first_layer()
    if layer is None:
        return []
    return (~layer.weight.transpose(0, 1).flatten(1).any(1)).nonzero().flatten().tolist()


def _shrink(link: Link) -> bool:
    """Take out the units of a link that do nothing; whether there were any."""
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
    if gone.all():  # a layer without units is no layer
        gone[0] = constant[0] = False
    if gone.any():
        fold(link.consumer, sent.where(repeated(constant, len(sent)), 0))
        keep_units(link, ~gone)
    return bool(gone.any())


def _require_same(module: nn.Module, pruned: nn.Module, example_shape: Shape) -> None:
    """Refuse a copy that differs: a forward may do what torch.fx does not see."""
    like = next(module.parameters())
    inputs = torch.randn(8, *example_shape, generator=torch.Generator().manual_seed(0)).to(like)
    with torch.no_grad():
        expected = module(inputs)
        try:
            found = pruned(inputs)
        except Exception as error:  # whatever the forward of a network raises
            raise FedcanonError(f"the pruned network fails: {one_line(error)}.") from error
    allowed = torch.finfo(like.dtype).eps ** 0.5 * max(1.0, float(expected.abs().max()))
    if not torch.allclose(found, expected, rtol=0, atol=allowed):
        raise FedcanonError("the pruned network has other outputs.")
