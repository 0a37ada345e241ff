"""Penalties placed on the named tensors of a flat vector."""

from __future__ import annotations

import glob
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

from torch import Tensor

from fedcanon.errors import FedcanonError
from fedcanon.layout import Layout, Slot
from fedcanon.penalties.base import Penalty, Shape
from fedcanon.penalties.separable import Separable


@dataclass(frozen=True)
class PerLayer(Penalty):
    """A penalty for each layer.

    h(x) = Σ_s h_s(x_s) over the named tensors s of a model, the slots of its layout.
    ρ = max_s ρ_s, B = Σ_s B_s.

    prox acts on each slot by itself, in the slot's own shape.

    Args:
        layout: Names and shapes of the tensors in the flat vector of the model.
        rules: Pairs of a pattern for names, such as ``"conv*.weight"``, and a penalty. The first
            pattern that matches the name of a slot gives its penalty; a slot that none matches
            carries none. A pattern that matches no name is refused with a ``FedcanonError``.

    Examples:
        >>> import torch
        >>> from fedcanon.layout import Layout
        >>> from fedcanon.penalties import L1, PerLayer
        >>> layout = Layout.of([("weight", (1, 2)), ("bias", (1,))])
        >>> penalty = PerLayer(layout, (("*weight", L1(kappa=0.5)),))
        >>> penalty.prox(torch.tensor([2.0, -0.25, 0.25]), step=1.0)
        tensor([1.5000, 0.0000, 0.2500])
    """

    layout: Layout
    rules: tuple[tuple[str, Penalty], ...]

    def __post_init__(self) -> None:
        names = [slot.name for slot in self.layout]
        for pattern, _ in self.rules:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise FedcanonError(
                    f'no layer has a name that matches "{pattern}"; the names are '
                    f"{', '.join(names)}."
                )

    @cached_property
    def placed(self) -> tuple[tuple[Slot, Penalty], ...]:
        """The slots that carry a penalty, each with its own."""
        pairs: list[tuple[Slot, Penalty]] = []
        for slot in self.layout:
            matching = (term for pattern, term in self.rules if fnmatchcase(slot.name, pattern))
            term = next(matching, None)
            if term is not None:
                pairs.append((slot, term))
        return tuple(pairs)

    def check_shape(self, shape: Shape) -> None:
        if tuple(shape) != (self.layout.size,):
            raise FedcanonError(
                f"the layers of this penalty form a vector of length {self.layout.size}, but it "
                f"acts on a tensor of shape {tuple(shape)}."
            )

    def check_step(self, step: float) -> None:
        for _, term in self.placed:
            term.check_step(step)
        super().check_step(step)

    @property
    def in_theory(self) -> bool:
        return all(term.in_theory for _, term in self.placed)

    @property
    def is_separable(self) -> bool:
        return all(term.is_separable for _, term in self.placed)

    @property
    def rho(self) -> float:
        return max((term.rho for _, term in self.placed), default=0.0)

    def value(self, x: Tensor) -> float:
        self.check_shape(x.shape)
        return sum(term.value(slot.view(x)) for slot, term in self.placed)

    def _prox_(self, x: Tensor, step: float) -> None:
        for slot, term in self.placed:
            term.prox_(slot.view(x), step)

    def subgradient_bound(self, shape: Shape) -> float:
        self.check_shape(shape)
        return sum(term.subgradient_bound(slot.shape) for slot, term in self.placed)

    def penalised(self, x: Tensor) -> list[Tensor]:
        self.check_shape(x.shape)
        return [part for slot, term in self.placed for part in term.penalised(slot.view(x))]


def on_weights(penalty: Penalty, layout: Layout) -> Penalty:
    """``penalty`` on every weight tensor of a model, the default placement.

    Args:
        penalty: What each weight tensor carries, in its own shape. A ``PerLayer`` comes back as it
            is, since it says itself where it acts.
        layout: Names and shapes of the tensors of the model. Weights are those with two or more
            dimensions, which leaves out biases and the parameters of normalisation layers; in a
            model without such tensors all of them are penalised.
    """
    weights = [slot for slot in layout if len(slot.shape) > 1] or list(layout)
    # A penalty of single entries that acts everywhere needs no placement.
    everywhere = len(weights) == len(layout.slots)
    if isinstance(penalty, PerLayer) or (everywhere and isinstance(penalty, Separable)):
        return penalty
    return PerLayer(layout, tuple((glob.escape(slot.name), penalty) for slot in weights))
