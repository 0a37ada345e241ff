"""Finds the layers of a network whose units reach the next layer one by one.

A unit is a neuron or a channel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, fx, nn

from fedcanon.errors import FedcanonError, first_line
from fedcanon.export.operations import (
    NORMS,
    Shape,
    Treatment,
    caller,
    reads_batch_size,
    treatment_of,
)
from fedcanon.objectives.models.resnet import Convolution

Layer = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d
LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, Convolution)
Norm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d


@dataclass(frozen=True)
class Step:
    """An operation between two layers.

    Flattening turns one unit into ``repeats`` units. Pooling ``keeps_constants`` if a constant map
    stays constant, which fails where the zeros of the padding enter an average.
    """

    kind: Treatment
    call: Callable[[Tensor], Tensor]
    repeats: int = 1
    keeps_constants: bool = True


@dataclass(frozen=True)
class Link:
    """Two layers: the units of ``producer`` reach only ``consumer``, each on its own way."""

    producer: Layer
    steps: tuple[Step, ...]
    consumer: Layer

    @property
    def norms(self) -> list[Norm]:
        """The batch normalisations between the two layers."""
        return [step.call for step in self.steps if isinstance(step.call, NORMS)]

    def constants(self) -> Tensor:
        """What units send if their incoming weights are all zero, for each input of the consumer.

        An entry is NaN if it is not the same at every pixel.
        """
        weight, bias = self.producer.weight, self.producer.bias
        values = weight.new_zeros(len(weight)) if bias is None else bias.detach().clone()
        values = values.view(1, -1, *[1] * (weight.ndim - 2))
        for step in self.steps:
            if step.kind is Treatment.FLATTEN:
                values = values.flatten().repeat_interleave(step.repeats).view(1, -1)
            elif step.kind is not Treatment.POOL:
                values = step.call(values)
            elif not step.keeps_constants:
                values = values.where(values == 0, torch.nan)
        return values.flatten()


class _Tracer(fx.Tracer):
    """Records every layer as one operation."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return type(m) in LAYERS or super().is_leaf_module(m, module_qualified_name)


class TracedNetwork:
    """The operations of a network on inputs of one shape, as torch.fx records them."""

    def __init__(self, module: nn.Module, example_shape: Shape) -> None:
        """Record the operations of a network.

        Args:
            module: The network, in evaluation mode.
            example_shape: The shape of one input.

        Raises:
            FedcanonError: Torch.fx cannot follow it, for instance because what it does depends
                on the values of its input.
        """
        example = next(module.parameters()).new_zeros(2, *example_shape)
        try:
            # In a container, because torch.fx sees only modules inside the one that it traces.
            whole = nn.Sequential(module)
            traced = fx.GraphModule(whole, _Tracer().trace(whole))
            with torch.no_grad():
                shapes = _Shapes(traced)
                shapes.run(example)
        except Exception as error:  # whatever the forward of a network raises
            raise FedcanonError(
                f"torch.fx cannot follow the network: {first_line(error)}."
            ) from error
        self._nodes, self._shapes = list(traced.graph.nodes), shapes.found
        self._modules = dict(traced.named_modules())
        tensors = traced.state_dict(keep_vars=True)
        self._uses = Counter(id(tensor) for tensor in tensors.values())
        for node in self._nodes:
            if node.op == "get_attr":
                self._uses[id(tensors.get(node.target))] += 1
            elif node.op == "call_module":
                self._uses[id(self._module(node))] += 1

    def links(self) -> list[Link]:
        """All pairs of linked layers, in the order of the computation."""
        found = []
        for node in self._nodes:
            producer = self._layer(node, node)
            if producer is not None and (way := self._way_from(node)):
                found.append(Link(producer, *way))
        return found

    def first_layer(self) -> Layer | None:
        """The layer that the inputs of the network reach one by one; None if there is none."""
        way = self._way_from(self._nodes[0])
        return way[1] if way else None

    def _way_from(self, node: fx.Node) -> tuple[tuple[Step, ...], Layer] | None:
        """The operations from a node to the next layer; None if they may mix units, or branch."""
        steps: list[Step] = []
        while True:
            users = [user for user in node.users if not reads_batch_size(user)]
            if len(users) != 1 or users[0].args[:1] != (node,):
                return None
            layer = self._layer(users[0], node)
            if layer is not None:
                return tuple(steps), layer
            step = self._step(users[0], node)
            if step is None:
                return None
            steps.append(step)
            node = users[0]

    def _layer(self, node: fx.Node, value: fx.Node) -> Layer | None:
        """The layer that a node calls, if the units of ``value`` are in dimension 1; else None."""
        layer = self._module(node)
        if not isinstance(layer, LAYERS) or type(layer) not in LAYERS or not self._is_plain(layer):
            return None
        mixes_all = getattr(layer, "groups", 1) == 1
        return layer if mixes_all and len(self._shapes[value]) == layer.weight.ndim else None

    def _step(self, node: fx.Node, value: fx.Node) -> Step | None:
        """The operation of a node on ``value``; None if it may mix units."""
        module, before = self._module(node), self._shapes[value]
        if node not in self._shapes or (module is not None and _is_hooked(module)):
            return None
        kind, call = treatment_of(node, module, before, self._shapes[node]), caller(node, module)
        if kind is Treatment.NORM:
            assert isinstance(module, NORMS)
            if module.running_mean is None or not self._is_plain(module):
                return None
        if kind is Treatment.POOL:
            ones = torch.ones(before)
            return Step(kind, call, keeps_constants=torch.allclose(call(ones), torch.ones(())))
        repeats = prod(before[2:]) if kind is Treatment.FLATTEN else 1
        return None if kind is None else Step(kind, call, repeats)

    def _module(self, node: fx.Node) -> nn.Module | None:
        return self._modules[str(node.target)] if node.op == "call_module" else None

    def _is_plain(self, module: nn.Module) -> bool:
        """Whether a module is called once, shares no tensor with others and has no hooks."""
        entries = (module, *module.state_dict(keep_vars=True).values())
        return not _is_hooked(module) and all(self._uses[id(entry)] == 1 for entry in entries)


def _is_hooked(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


class _Shapes(fx.Interpreter):
    """Runs a traced network and records the shape of every tensor."""

    def __init__(self, traced: fx.GraphModule) -> None:
        super().__init__(traced)
        self.found: dict[fx.Node, Shape] = {}

    def run_node(self, n: fx.Node) -> Any:
        """Run one operation."""
        result = super().run_node(n)
        if isinstance(result, Tensor):
            self.found[n] = tuple(result.shape)
        return result
