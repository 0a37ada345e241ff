"""Which layers pass their units to which, with nothing between that mixes units."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, fx, nn

from fedcanon.errors import FedcanonError
from fedcanon.export.messages import one_line
from fedcanon.export.operations import NORMS, Kind, Shape, caller, kind_of, reads_batch_size

Layer = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d
LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
Norm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d


@dataclass(frozen=True)
class Step:
    """An operation between two layers.

    Flattening makes ``repeats`` units of one. Pooling ``keeps_constants`` if a map that is the
    same everywhere stays so; averages with the zeros beyond the border do not.
    """

    kind: Kind
    call: Callable[[Tensor], Tensor]
    repeats: int = 1
    keeps_constants: bool = True


@dataclass(frozen=True)
class Link:
    """A layer whose units reach one other layer only, each by itself."""

    producer: Layer
    steps: tuple[Step, ...]
    consumer: Layer

    @property
    def norms(self) -> list[Norm]:
        """The batch normalisations on the way."""
        return [step.call for step in self.steps if isinstance(step.call, NORMS)]

    def constants(self) -> Tensor:
        """What units without incoming weights send, an entry for each input of the consumer.

        NaN stands for what is not the same at every pixel.
        """
        weight, bias = self.producer.weight, self.producer.bias
        values = weight.new_zeros(len(weight)) if bias is None else bias.detach().clone()
        values = values.view(1, -1, *[1] * (weight.ndim - 2))
        for step in self.steps:
            if step.kind is Kind.FLATTEN:
                values = values.flatten().repeat_interleave(step.repeats).view(1, -1)
            elif step.kind is not Kind.POOL:
                values = step.call(values)
            elif not step.keeps_constants:
                values = values.where(values == 0, torch.nan)
        return values.flatten()


class Trace:
    """The computation of a network on inputs of one shape."""

    def __init__(self, module: nn.Module, example_shape: Shape) -> None:
        """Follow a network that is in evaluation mode.

        Raises:
            FedcanonError: what it does depends on the values of its input.
        """
        example = next(module.parameters()).new_zeros(2, *example_shape)
        try:
            # In a container, because torch.fx sees only modules inside the one that it traces.
            traced = fx.symbolic_trace(nn.Sequential(module))
            with torch.no_grad():
                shapes = _Shapes(traced)
                shapes.run(example)
        except Exception as error:  # whatever the forward of a network raises
            raise FedcanonError(
                f"torch.fx cannot follow the network: {one_line(error)}."
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
        """All links, in the order of the computation."""
        found = []
        for node in self._nodes:
            producer = self._layer(node, node)
            if producer is not None and (way := self._way_from(node)):
                found.append(Link(producer, *way))
        return found

    def first_layer(self) -> Layer | None:
        """The layer that the inputs reach, each by itself, if there is one."""
        way = self._way_from(self._nodes[0])
        return way[1] if way else None

    def _way_from(self, node: fx.Node) -> tuple[tuple[Step, ...], Layer] | None:
        """How a value reaches a layer; None if its units may be mixed, or used elsewhere too."""
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
        """The layer that a node calls, if units are in dimension 1 of its input or output."""
        layer = self._module(node)
        if not isinstance(layer, LAYERS) or type(layer) not in LAYERS or not self._is_plain(layer):
            return None
        mixes_all = getattr(layer, "groups", 1) == 1
        return layer if mixes_all and len(self._shapes[value]) == layer.weight.ndim else None

    def _step(self, node: fx.Node, value: fx.Node) -> Step | None:
        """What a node does to a value; None if it may mix units."""
        module, before = self._module(node), self._shapes[value]
        if node not in self._shapes or (module is not None and _is_hooked(module)):
            return None
        kind, call = kind_of(node, module, before, self._shapes[node]), caller(node, module)
        if kind is Kind.NORM:
            assert isinstance(module, NORMS)
            if module.running_mean is None or not self._is_plain(module):
                return None
        if kind is Kind.POOL:
            ones = torch.ones(before)
            return Step(kind, call, keeps_constants=torch.allclose(call(ones), torch.ones(())))
        repeats = prod(before[2:]) if kind is Kind.FLATTEN else 1
        return None if kind is None else Step(kind, call, repeats)

    def _module(self, node: fx.Node) -> nn.Module | None:
        return self._modules[str(node.target)] if node.op == "call_module" else None

    def _is_plain(self, module: nn.Module) -> bool:
        """Whether a module is called once, shares no tensor and does nothing beside."""
        entries = (module, *module.state_dict(keep_vars=True).values())
        return not _is_hooked(module) and all(self._uses[id(entry)] == 1 for entry in entries)


def _is_hooked(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


class _Shapes(fx.Interpreter):
    """Runs a traced network and notes the shape of every tensor."""

    def __init__(self, traced: fx.GraphModule) -> None:
        super().__init__(traced)
        self.found: dict[fx.Node, Shape] = {}

    def run_node(self, n: fx.Node) -> Any:
        """Run one operation."""
        result = super().run_node(n)
        if isinstance(result, Tensor):
            self.found[n] = tuple(result.shape)
        return result
