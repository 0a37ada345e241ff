"""Networks of linear layers and ReLU under cross-entropy, with their gradient by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedcanon.objectives.clipping import clip_factors
from fedcanon.objectives.losses import is_plain_cross_entropy


@dataclass(frozen=True)
class Batch:
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


@dataclass(frozen=True)
class Perceptron:
    """Linear layers with ReLU after some of them: for small networks faster than autograd.

    A local step adds −step·∇W to W inside the matrix product that makes ∇W, so that no gradient is
    stored. Activations are features × batch: in that order the products and the softmax of several
    clients at once are several times as fast as in the usual one.

    Its methods take the parameters in the order of the module's.

    Args:
        has_bias: Which layers have a bias.
        relu: After which layers there is a ReLU.
    """

    has_bias: tuple[bool, ...]
    relu: tuple[bool, ...]

    def descend_(self, parameters: Sequence[Tensor], batch: Batch, step: float) -> None:
        """Move the parameters by −step times the gradient of the loss over a batch."""
        for weight, bias, d, h in self._backward(parameters, batch):
            if weight.ndim == 2:
                weight.addmm_(d, h.mT, alpha=-step)
            else:
                weight.baddbmm_(d, h.mT, alpha=-step)
            if bias is not None:
                bias.sub_(d.sum(-1), alpha=step)

    def gradient(self, parameters: Sequence[Tensor], batch: Batch) -> list[Tensor]:
        """The gradient of the loss over a batch, for each parameter."""
        found: list[Tensor] = []
        for _, bias, d, h in self._backward(parameters, batch):
            found += [d @ h.mT] if bias is None else [d.sum(-1), d @ h.mT]
        return found[::-1]

    def clipped_sum(self, parameters: Sequence[Tensor], batch: Batch, bound: float) -> list[Tensor]:
        """The sum of the gradients of single samples, each clipped to a norm, for each parameter.

        The gradient of a sample is d hᵀ in the weights and d in the bias of a layer, if d is
        ∂loss/∂output and h the input: its squared norm there is ‖d‖²(‖h‖² + 1).

        Args:
            parameters: Those of one client.
            batch: Samples of one client, with shares of 1.
            bound: The largest norm of one summand.
        """
        layers = [(bias is not None, d, h) for _, bias, d, h in self._backward(parameters, batch)]
        squares = [d.square().sum(0) * (h.square().sum(0) + bias) for bias, d, h in layers]
        finite, factors = clip_factors(torch.stack(squares).sum(0), bound)
        found: list[Tensor] = []
        for bias, d, h in layers:
            clipped = d[:, finite] * factors
            found += [clipped.sum(-1)] if bias else []
            found.append(clipped @ h[:, finite].mT)
        return found[::-1]

    def _backward(
        self, parameters: Sequence[Tensor], batch: Batch
    ) -> Iterator[tuple[Tensor, Tensor | None, Tensor, Tensor]]:
        """For each layer from the last: weight, bias, ∂loss/∂output and input.

        The weight and the bias may be changed then: they are not needed again.
        """
        given = iter(parameters)
        layers = [(next(given), next(given) if bias else None) for bias in self.has_bias]
        activations = [batch.inputs.mT]
        for (weight, bias), relu in zip(layers, self.relu, strict=True):
            h = _affine(weight, bias, activations[-1])
            activations.append(h.relu_() if relu else h)
        d = activations[-1].softmax(-2)
        chosen = batch.targets.unsqueeze(-2)
        d.scatter_add_(-2, chosen, d.new_full((), -1.0).expand(chosen.shape)).mul_(batch.shares)
        for k in reversed(range(len(layers))):
            weight, bias = layers[k]
            below = weight.mT @ d if k else d
            yield weight, bias, d, activations[k]
            if k:
                relu = self.relu[k - 1]
                d = torch.ops.aten.threshold_backward(below, activations[k], 0) if relu else below


def _affine(weight: Tensor, bias: Tensor | None, h: Tensor) -> Tensor:
    """Weight·h + bias, of one client or of several."""
    if bias is None:
        return weight @ h
    if weight.ndim == 2:
        return torch.addmm(bias.unsqueeze(-1), weight, h)
    return torch.baddbmm(bias.unsqueeze(-1), weight, h)


def perceptron_of(module: nn.Module, loss: object) -> Perceptron | None:
    """The module under this loss as a perceptron; None if it is something else."""
    if not (type(module) is nn.Sequential and is_plain_cross_entropy(loss)):
        return None
    modules = list(module.modules())
    if any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in modules):
        return None
    layers = [m for m in modules if type(m) is not nn.Sequential]
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
