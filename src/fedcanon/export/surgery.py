"""Removes units from layers without changing what the network computes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedcanon.export.links import Layer, Link, Norm


def fold(layer: Layer, sent: Tensor) -> None:
    """Add to the bias of a layer what constant inputs contribute to its outputs.

    Args:
        layer: The layer, which is changed.
        sent: The value of every constant input, and 0 for the other inputs.
    """
    change = layer.weight.reshape(len(layer.weight), len(sent), -1).sum(2) @ sent
    if layer.bias is not None:
        layer.bias += change
    elif change.any():
        layer.bias = nn.Parameter(change)


def merge(layer: Layer, constant: Tensor, sent: Tensor) -> Tensor:
    """Let one of several constant channels replace all of them.

    Constant maps are multiples of each other, so that one of them, with a weighted sum of the
    weights, can replace the others. This is exact for every kind of border.

    Args:
        layer: The layer, which is changed.
        constant: Which channels are constant.
        sent: The value of every channel.

    Returns:
        The channels that are not needed any more.
    """
    idle = constant.clone()
    if constant.any():
        largest = int(sent.abs().where(constant, -1).argmax())
        shares = (sent / sent[largest]).where(constant, 0)
        layer.weight[:, largest] = torch.einsum("oi...,i->o...", layer.weight, shares)
        idle[largest] = False
    return idle


def pads_with_zeros(layer: Layer) -> bool:
    """Whether a layer is a convolution that pads its input with zeros."""
    if isinstance(layer, nn.Linear) or layer.padding_mode != "zeros":
        return False
    return layer.padding != "valid" and any(layer.padding)


def by_unit(weight: Tensor, units: int) -> Tensor:
    """View the weights of a layer as outputs × units of the previous layer × weights of a pair."""
    return weight.reshape(len(weight), units, -1, *weight.shape[2:])


def repeated(choice: Tensor, size: int) -> Tensor:
    """The choice of inputs that flattening makes of a choice of units."""
    return choice.repeat_interleave(size // len(choice))


def keep_units(link: Link, keep: Tensor) -> None:
    """Remove all other units from both layers of a link and from the layers between them."""
    _keep_outputs(link.producer, keep)
    for norm in link.norms:
        _keep_channels(norm, repeated(keep, norm.num_features))
    _keep_inputs(link.consumer, keep)


def _keep_outputs(layer: Layer, keep: Tensor) -> None:
    layer.weight = nn.Parameter(layer.weight[keep])
    if layer.bias is not None:
        layer.bias = nn.Parameter(layer.bias[keep])
    name = "out_features" if isinstance(layer, nn.Linear) else "out_channels"
    setattr(layer, name, len(layer.weight))


def _keep_inputs(layer: Layer, keep: Tensor) -> None:
    layer.weight = nn.Parameter(by_unit(layer.weight, len(keep))[:, keep].flatten(1, 2))
    name = "in_features" if isinstance(layer, nn.Linear) else "in_channels"
    setattr(layer, name, layer.weight.shape[1])


def _keep_channels(norm: Norm, keep: Tensor) -> None:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    norm.running_mean, norm.running_var = norm.running_mean[keep], norm.running_var[keep]
    if norm.affine:
        norm.weight, norm.bias = nn.Parameter(norm.weight[keep]), nn.Parameter(norm.bias[keep])
    norm.num_features = len(norm.running_mean)
