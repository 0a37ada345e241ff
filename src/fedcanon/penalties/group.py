"""Penalties of the norms of groups of entries that the user chooses."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from math import prod, sqrt

import torch
from torch import Tensor

from fedcanon.errors import FedcanonError
from fedcanon.penalties.base import Penalty, Shape, require_above
from fedcanon.penalties.folded import MCP, SCAD, Form
from fedcanon.penalties.radial import Radial
from fedcanon.penalties.separable import L1, Separable, WeightedL1

Groups = int | tuple[tuple[int, ...], ...] | None


class Grouped(Radial):
    """A radial penalty over groups that the user chooses.

    In a tensor with two or more dimensions each slice along ``axis`` is a group; axis 0 makes
    groups of the rows of a linear layer (its neurons) and of the output channels of a convolution.
    A vector needs ``groups``: an integer cuts it into consecutive blocks of that length, a tuple of
    tuples lists the indices of each group, and indices not listed carry no penalty.
    """

    axis: int
    groups: Groups

    def __post_init__(self) -> None:
        if isinstance(self.groups, int):
            require_above(self, "groups", 0)
        elif self.groups is not None:
            indices = [index for group in self.groups for index in group]
            empty = not self.groups or not all(self.groups)
            if empty or len(set(indices)) < len(indices) or min(indices) < 0:
                raise FedcanonError(
                    f"the groups of {type(self).__name__} must not be empty or overlap, and "
                    "their indices start at 0."
                )

    @cached_property
    def _listed(self) -> tuple[Tensor, Tensor]:
        """The listed indices, group after group, and the group of each."""
        assert isinstance(self.groups, tuple)
        index = [index for group in self.groups for index in group]
        owner = [number for number, group in enumerate(self.groups) for _ in group]
        return torch.tensor(index), torch.tensor(owner)

    def index(self, device: torch.device) -> Tensor:
        """The listed indices, group after group."""
        return self._listed[0].to(device)

    def sizes(self, shape: Shape) -> tuple[int, ...]:
        """How many entries each group has in a tensor of this shape."""
        name = type(self).__name__
        if len(shape) > 1:
            if self.groups is not None:
                raise FedcanonError(
                    f"{name} has groups for a vector, but acts on a tensor of shape "
                    f"{tuple(shape)}: leave groups out, and its slices along axis are the groups."
                )
            if not -len(shape) <= self.axis < len(shape):
                raise FedcanonError(f"a tensor of shape {tuple(shape)} has no axis {self.axis}.")
            count = shape[self.axis]
            return (prod(shape) // max(1, count),) * count
        length = prod(shape)
        if self.groups is None:
            raise FedcanonError(
                f"{name} acts on a vector of length {length} and needs groups: the length of "
                "consecutive blocks, or the indices of each group."
            )
        if isinstance(self.groups, int):
            if length % self.groups:
                raise FedcanonError(
                    f"{name} cannot cut a vector of length {length} into blocks of {self.groups}: "
                    f"choose a divisor of {length}."
                )
            return (self.groups,) * (length // self.groups)
        if int(self._listed[0].max()) >= length:
            raise FedcanonError(
                f"{name} has a group with index {int(self._listed[0].max())}, but the vector has "
                f"length {length}."
            )
        return tuple(len(group) for group in self.groups)

    def _rows(self, x: Tensor) -> Tensor:
        if isinstance(self.groups, int):
            return x.view(-1, self.groups)
        return x.movedim(self.axis, 0)

    def _norms(self, x: Tensor) -> Tensor:
        sizes = self.sizes(x.shape)
        if not isinstance(self.groups, tuple):
            return super()._norms(x)
        squares = x[self.index(x.device)].double().square_()
        owner = self._listed[1].to(x.device)
        return squares.new_zeros(len(sizes)).index_add_(0, owner, squares).sqrt_().to(x.dtype)

    def _scale_(self, x: Tensor, factors: Tensor) -> None:
        if isinstance(self.groups, tuple):
            x[self.index(x.device)] *= factors[self._listed[1].to(x.device)]
        else:
            super()._scale_(x, factors)

    def penalised(self, x: Tensor) -> list[Tensor]:
        return [x[self.index(x.device)]] if isinstance(self.groups, tuple) else [x]

    def subgradient_bound(self, shape: Shape) -> float:
        return self._outer(shape).subgradient_bound((len(self.sizes(shape)),))


@dataclass(frozen=True)
class GroupLasso(Grouped):
    """Group lasso, whole groups are zero or not.

    h(x) = κ Σ_g w_g ‖x_g‖, with w_g = √(size of g) unless weights are given, one for each group.
    Convex, B = κ² Σ_g w_g². ``axis`` and ``groups`` choose the groups.

    prox_{ah}(y)_g = max(0, 1 − aκw_g/‖y_g‖) y_g.
    """

    kappa: float = 1e-3
    axis: int = 0
    groups: Groups = None
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_above(self, "kappa", 0, or_equal=True)
        if self.weights is not None or isinstance(self.groups, tuple):
            _ = self._weighted

    @cached_property
    def _weighted(self) -> WeightedL1:
        """κ Σ_g w_g s_g where the weights differ from group to group."""
        if self.weights is not None:
            return WeightedL1(self.kappa, self.weights)
        assert isinstance(self.groups, tuple)
        return WeightedL1(self.kappa, tuple(sqrt(len(group)) for group in self.groups))

    def sizes(self, shape: Shape) -> tuple[int, ...]:
        sizes = super().sizes(shape)
        if self.weights is not None and len(self.weights) != len(sizes):
            raise FedcanonError(
                f"GroupLasso has {len(self.weights)} weights for {len(sizes)} groups: give one "
                "weight per group."
            )
        return sizes

    def _outer(self, shape: Shape) -> Separable:
        sizes = self.sizes(shape)
        if self.weights is None and not isinstance(self.groups, tuple):
            return L1(self.kappa * sqrt(max(sizes, default=0)))
        return self._weighted


@dataclass(frozen=True)
class SparseGroupLasso(Penalty):
    """Sparse group lasso, zero groups and zeros inside the others.

    h(x) = κ₁ Σ_j |x_j| + κ₂ Σ_g w_g ‖x_g‖, with w_g = √(size of g) unless weights are given. Both
    sums leave out the indices of a vector that no group lists. Convex, B = Σ_g (κ₁√|g| + κ₂w_g)².

    prox: first the prox of the ℓ1 term, then that of the group lasso; not in the other order.
    """

    kappa1: float = 1e-3
    kappa2: float = 1e-3
    axis: int = 0
    groups: Groups = None
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        require_above(self, "kappa1", 0, or_equal=True)
        require_above(self, "kappa2", 0, or_equal=True)
        _ = self._between

    @property
    def _within(self) -> L1:
        return L1(self.kappa1)

    @cached_property
    def _between(self) -> GroupLasso:
        return GroupLasso(self.kappa2, self.axis, self.groups, self.weights)

    def value(self, x: Tensor) -> float:
        return self._between.value(x) + sum(self._within.value(part) for part in self.penalised(x))

    def _prox_(self, x: Tensor, step: float) -> None:
        self._between.sizes(x.shape)  # refuses a shape that does not fit before x changes
        if isinstance(self.groups, tuple):
            index = self._between.index(x.device)
            x[index] = self._within.prox_(x[index], step)
        else:
            self._within.prox_(x, step)
        self._between.prox_(x, step)

    def penalised(self, x: Tensor) -> list[Tensor]:
        return self._between.penalised(x)

    def subgradient_bound(self, shape: Shape) -> float:
        sizes = self._between.sizes(shape)
        weights = tuple(map(sqrt, sizes)) if self.weights is None else self.weights
        return sum(
            (self.kappa1 * sqrt(size) + self.kappa2 * weight) ** 2
            for size, weight in zip(sizes, weights, strict=True)
        )


class _FoldedGroups(Grouped):
    """Σ_g φ(‖x_g‖) with the φ of a folded penalty, the same for every group."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self._phi

    @cached_property
    @abstractmethod
    def _phi(self) -> MCP | SCAD:
        """φ, which also checks the parameters."""

    @property
    def rho(self) -> float:
        return self._phi.rho

    def _outer(self, shape: Shape) -> Separable:
        return self._phi


@dataclass(frozen=True)
class GroupMCP(_FoldedGroups):
    """Minimax concave penalty of group norms.

    h(x) = w Σ_g φ(‖x_g‖) with w, φ and both forms as for MCP. ρ = w/γ, B = (wλ)² per group.
    ``axis`` and ``groups`` choose the groups, as for the group lasso.

    prox multiplies y_g by prox_φ(‖y_g‖)/‖y_g‖.
    """

    kappa: float = 1e-3
    gamma: float = 3.0
    form: Form = "scaled"
    axis: int = 0
    groups: Groups = None

    @cached_property
    def _phi(self) -> MCP:
        return MCP(self.kappa, self.gamma, self.form)


@dataclass(frozen=True)
class GroupSCAD(_FoldedGroups):
    """Smoothly clipped absolute deviation of group norms.

    h(x) = w Σ_g φ(‖x_g‖) with w, φ and both forms as for SCAD. ρ = w/(A − 1), B = (wλ)² per
    group. ``axis`` and ``groups`` choose the groups, as for the group lasso.

    prox multiplies y_g by prox_φ(‖y_g‖)/‖y_g‖.
    """

    kappa: float = 1e-3
    A: float = 3.7
    form: Form = "scaled"
    axis: int = 0
    groups: Groups = None

    @cached_property
    def _phi(self) -> SCAD:
        return SCAD(self.kappa, self.A, self.form)
