"""Convolutional networks in an order of operations that takes less time."""

from __future__ import annotations

from itertools import chain

import torch
from torch import Tensor, nn

KNOWN = (nn.Conv2d, nn.ReLU, nn.MaxPool2d, nn.Flatten, nn.Linear, nn.Dropout)
"""Layers that work in any memory format; others may not."""


class _ChannelsLast(nn.Module):
    """Lays images out pixel by pixel, with all channels of a pixel side by side."""

    def forward(self, x: Tensor) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        if x.shape[1] > 1:
            return x
        # The bytes are the same in either order: strides tell a convolution which one is meant.
        _, _, height, width = x.shape
        return x.as_strided(x.shape, (height * width, 1, width, 1))


def reordered(module: nn.Module) -> nn.Module:
    """Return a network with the same layers and the same result, which may take less time.

    max(relu(a), relu(b)) = relu(max(a, b)), also in its derivatives, so that ReLU may come after
    max-pooling, where there are fewer entries. Pooling is faster if channels lie side by side, as
    they do in the output of a convolution if they do in its input. A module that is no sequence of
    convolution, ReLU, max-pooling and the like is returned as it is.
    """
    layers = list(module.children())
    triples = zip(layers, layers[1:], layers[2:], strict=False)
    pooled = [k for k, triple in enumerate(triples) if _is_pooled(*triple)]
    if type(module) is not nn.Sequential or not pooled:
        return module
    if any(type(each) not in KNOWN for each in layers) or has_hooks(module):
        return module
    order = [[layer] for layer in layers]
    for k in pooled:
        convolution, relu, pooling = layers[k : k + 3]
        order[k : k + 3] = [_ChannelsLast(), convolution], [pooling], [relu]
    return nn.Sequential(*chain.from_iterable(order))


def _is_pooled(convolution: nn.Module, relu: nn.Module, pooling: nn.Module) -> bool:
    """Whether these are a convolution, ReLU and max-pooling."""
    return (
        isinstance(convolution, nn.Conv2d)
        and isinstance(relu, nn.ReLU)
        and isinstance(pooling, nn.MaxPool2d)
        and not pooling.return_indices
    )


def has_hooks(module: nn.Module) -> bool:
    """Tell whether other code is called whenever a module, or one inside it, computes."""
    return any(
        each._forward_hooks or each._forward_pre_hooks or each._backward_hooks
        for each in module.modules()
    )
