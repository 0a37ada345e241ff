"""Operations between layers that do not mix units, as torch.fx records them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from enum import Enum, auto
from math import prod
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

Shape = tuple[int, ...]


class Treatment(Enum):
    """How an operation treats units, which are in dimension 1 of its input."""

    ENTRYWISE = auto()
    """it acts on every entry alone, such as ReLU"""
    NORM = auto()
    """it scales every unit by numbers of its own: batch normalisation with running statistics"""
    POOL = auto()
    """it pools the map of every unit alone"""
    FLATTEN = auto()
    """it turns every pixel of a unit into a unit"""


NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
# Classes and functions are compared by identity: a subclass may compute anything. Strings are
# methods of tensors.
_ENTRYWISE: tuple[Any, ...] = (
    *(nn.ReLU, functional.relu, functional.relu_, torch.relu, "relu", "relu_"),
    *(nn.ReLU6, functional.relu6, nn.LeakyReLU, functional.leaky_relu),
    *(nn.ELU, functional.elu, nn.SELU, functional.selu, nn.CELU, functional.celu),
    *(nn.GELU, functional.gelu, nn.SiLU, functional.silu, nn.Mish, functional.mish),
    *(nn.Hardswish, functional.hardswish, nn.Hardsigmoid, functional.hardsigmoid),
    *(nn.Hardtanh, functional.hardtanh, nn.Softplus, functional.softplus),
    *(nn.Sigmoid, functional.sigmoid, torch.sigmoid, "sigmoid"),
    *(nn.Tanh, functional.tanh, torch.tanh, "tanh"),
    *(nn.Identity, "contiguous"),
)
_DROPOUT: tuple[Any, ...] = (
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d),
    *(functional.dropout, functional.dropout1d, functional.dropout2d, functional.dropout3d),
)
_POOLS: dict[Any, int] = {
    getattr(space, name.format(dimensions)): dimensions
    for dimensions in (1, 2, 3)
    for space, names in (
        (nn, ("MaxPool{}d", "AvgPool{}d", "AdaptiveMaxPool{}d", "AdaptiveAvgPool{}d")),
        (functional, ("max_pool{}d", "avg_pool{}d")),
        (functional, ("adaptive_max_pool{}d", "adaptive_avg_pool{}d")),
    )
    for name in names
}
_FLATTEN: tuple[Any, ...] = (nn.Flatten, torch.flatten, "flatten")
_RESHAPE: tuple[Any, ...] = (torch.reshape, "reshape", "view")


def treatment_of(
    node: fx.Node, module: nn.Module | None, before: Shape, after: Shape
) -> Treatment | None:
    """How a node treats the units of a value of shape ``before``; None if it may mix them."""
    operation = node.target if module is None else type(module)
    if operation in _ENTRYWISE:
        return Treatment.ENTRYWISE
    if operation in _DROPOUT:
        active = module is None and node.kwargs.get("training") is not False
        return None if active else Treatment.ENTRYWISE
    if operation in NORMS:
        return Treatment.NORM
    if operation in _POOLS:  # with fewer dimensions it would take the batch for channels
        return Treatment.POOL if len(before) == _POOLS[operation] + 2 else None
    if operation in _FLATTEN or (operation in _RESHAPE and _leaves_the_last_size_open(node)):
        return Treatment.FLATTEN if after == (before[0], prod(before[1:])) else None
    return None


def reads_batch_size(node: fx.Node) -> bool:
    """Whether a node is x.size(0), or the x.shape of x.shape[0], which use no entry of x."""
    if (node.op, node.target) == ("call_method", "size"):
        return node.args[1:] == (0,)
    if node.target is not getattr or node.args[1:] != ("shape",):
        return False
    return all(user.target is operator.getitem and user.args[1] == 0 for user in node.users)


def caller(node: fx.Node, module: nn.Module | None) -> Callable[[Tensor], Tensor]:
    """The function of its first argument that a node computes."""
    if module is not None:
        return module

    def call(x: Tensor) -> Tensor:
        target: Any = node.target
        function = getattr(x, target) if node.op == "call_method" else target
        first = () if node.op == "call_method" else (x,)
        result: Tensor = function(*first, *node.args[1:], **node.kwargs)
        return result

    return call


def _leaves_the_last_size_open(node: fx.Node) -> bool:
    """Whether a node is view(batch, -1); with a number in place of −1 it could not be pruned."""
    sizes: Any = node.args[1:]
    if len(sizes) == 1 and isinstance(sizes[0], tuple | list):
        sizes = sizes[0]
    return len(sizes) == 2 and sizes[1] == -1
