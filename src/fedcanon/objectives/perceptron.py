"""Networks of linear layers and ReLU under cross-entropy, with their gradient by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedcanon.objectives.clipping import clip_factors
from fedcanon.objectives.losses import is_plain_cross_entropy
from fedcanon.objectives.reordered import has_hooks


class Batch(NamedTuple):
    """A mini-batch of one client, or one of each of several clients.

    Args:
        inputs: One row of features for each sample. If there are several clients, the first index
            is the client.
        targets: The class of each sample.
        shares: The weight of each sample in the loss: 1/|batch| for a mean.
    """

    inputs: Tensor
    targets: Tensor
    shares: Tensor | float


class _Layer(NamedTuple):
    """The parameters of a layer, with views of them that every step needs."""

    weight: Tensor
    transposed: Tensor
    bias: Tensor | None
    column: Tensor | None
    relu: bool


@dataclass(frozen=True)
class Perceptron:
    """Linear layers with ReLU after some of them: for small networks faster than autograd.

    Args:
        has_bias: Which layers have a bias.
        relu: After which layers there is a ReLU.
    """

    has_bias: tuple[bool, ...]
    relu: tuple[bool, ...]

    def at(self, parameters: Sequence[Tensor]) -> PerceptronAt:
        """The network with these parameters, which are in the order of the module's."""
        return PerceptronAt(self, parameters)


class PerceptronAt:
    """A perceptron with parameters, which steps change in place.

    A local step adds −step·∇W to W inside the matrix product that makes ∇W, so that no gradient is
    stored. Activations are features × batch: in that order the products and the softmax of several
    clients at once are several times as fast as in the usual one. Next to the products of a small
    network every single operation takes time, so that there are as few of them as possible.
    """

    def __init__(self, perceptron: Perceptron, parameters: Sequence[Tensor]) -> None:
        given, self._layers = iter(parameters), list[_Layer]()
        for has_bias, relu in zip(perceptron.has_bias, perceptron.relu, strict=True):
            weight, bias = next(given), next(given) if has_bias else None
            column = None if bias is None else bias.unsqueeze(-1)
            self._layers.append(_Layer(weight, weight.mT, bias, column, relu))
        classes = self._layers[-1].weight.shape[-2]
        self._indicators = torch.eye(classes, dtype=weight.dtype, device=weight.device)
        self._ones = weight.new_empty(0)

    def descend_(self, batch: Batch, step: float) -> None:
        """Move the parameters by −step times the gradient of the loss over a batch."""
        if batch.inputs.ndim == 3:
            for layer, d, h in self._backward(batch):
                layer.weight.baddbmm_(d, h.mT, alpha=-step)
                if layer.bias is not None:
                    layer.bias.sub_(d.sum(-1), alpha=step)
            return
        if len(self._ones) != len(batch.inputs):
            self._ones = batch.inputs.new_ones(len(batch.inputs))
        for layer, d, h in self._backward(batch):
            layer.weight.addmm_(d, h.mT, alpha=-step)
            if layer.bias is not None:
                layer.bias.addmv_(d, self._ones, alpha=-step)

    def gradient(self, batch: Batch) -> list[Tensor]:
        """The gradient of the loss over a batch, for each parameter."""
        found: list[Tensor] = []
        for layer, d, h in self._backward(batch):
            found += [d @ h.mT] if layer.bias is None else [d.sum(-1), d @ h.mT]
        return found[::-1]

    def clipped_sum(self, batch: Batch, bound: float) -> list[Tensor]:
        """The sum of the gradients of single samples, each clipped to a norm, for each parameter.

        The gradient of a sample is d hᵀ in the weights and d in the bias of a layer, if d is
        ∂loss/∂output and h the input: its squared norm there is ‖d‖²(‖h‖² + 1).

        Args:
            batch: Samples of one client, with shares of 1.
            bound: The largest norm of one summand.
        """
        layers = [(layer.bias is not None, d, h) for layer, d, h in self._backward(batch)]
        squares = [d.square().sum(0) * (h.square().sum(0) + bias) for bias, d, h in layers]
        finite, factors = clip_factors(torch.stack(squares).sum(0), bound)
        found: list[Tensor] = []
        for bias, d, h in layers:
            clipped = d[:, finite] * factors
            found += [clipped.sum(-1)] if bias else []
            found.append(clipped @ h[:, finite].mT)
        return found[::-1]

    def _backward(self, batch: Batch) -> Iterator[tuple[_Layer, Tensor, Tensor]]:
        """For each layer from the last: its parameters, ∂loss/∂output and input.

        The parameters may be changed then: they are not needed again.
        """
        h = batch.inputs.mT
        activations = [h]
        for layer in self._layers:
            h = _affine(layer, h)
            activations.append(h.relu_() if layer.relu else h)
        d = h.softmax(-2).sub_(self._classes(batch.targets)).mul_(batch.shares)
        for k in range(len(self._layers) - 1, 0, -1):
            layer, h = self._layers[k], activations[k]
            below = layer.transposed @ d
            yield layer, d, h
            d = _threshold_backward(below, h, 0) if self._layers[k - 1].relu else below
        yield self._layers[0], d, activations[0]

    def _classes(self, targets: Tensor) -> Tensor:
        """For each sample a 1 in the row of its class, and 0 in the others."""
        # Columns of a matrix take half the time of writing single entries.
        if targets.ndim == 1:
            return self._indicators.index_select(1, targets)
        return self._indicators[:, targets].movedim(0, 1)


_threshold_backward = torch.ops.aten.threshold_backward.default


def _affine(layer: _Layer, h: Tensor) -> Tensor:
    """Weight·h + bias, of one client or of several."""
    if layer.column is None:
        return layer.weight @ h
    if h.ndim == 2:
        return torch.addmm(layer.column, layer.weight, h)
    return torch.baddbmm(layer.column, layer.weight, h)


def perceptron_of(module: nn.Module, loss: object) -> Perceptron | None:
    """The module under this loss as a perceptron; None if it is something else."""
    if not (type(module) is nn.Sequential and is_plain_cross_entropy(loss)):
        return None
    if has_hooks(module):
        return None
    layers = [m for m in module.modules() if type(m) is not nn.Sequential]
    if layers and type(layers[0]) is nn.Flatten:
        layers = layers[1:]
    has_bias, relu = list[bool](), list[bool]()
    for layer in layers:
        if type(layer) is nn.Linear and all(p.requires_grad for p in layer.parameters()):
            has_bias.append(layer.bias is not None)
            relu.append(False)
        elif type(layer) is nn.ReLU and relu and not relu[-1]:
            relu[-1] = True
        else:
            return None
    parameters = sum(1 + bias for bias in has_bias)
    tied = parameters != len(list(module.parameters()))
    return None if tied or not has_bias or relu[-1] else Perceptron(tuple(has_bias), tuple(relu))
