"""Penalties of the norms of groups of entries that the user chooses."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from math import prod, sqrt

import torch
from torch import Tensor

from fedcanon.errors import FedcanonError
from fedcanon.penalties.base import Penalty, Shape, require_above, weights_of
from fedcanon.penalties.folded import MCP, SCAD, Form
from fedcanon.penalties.radial import Radial
from fedcanon.penalties.separable import L1, Separable, WeightedL1

Groups = int | Sequence[Sequence[int]] | Mapping[str, Sequence[int]] | None


class Grouped(Radial):
    """A radial penalty over groups that the user chooses.

    In a tensor with two or more dimensions, ``axis`` says what is grouped: its slices along that
    axis. For the weights of a linear layer these are the rows, one for each output, with axis 0
    and the columns, one for each input, with axis 1. In a vector the entries are grouped.

    Attributes:
        axis: The axis whose slices are grouped. A vector has only one, whatever is given here.
        groups: Which slices, or entries of a vector, form a group: the number of consecutive ones
            in each group; the indices of each group; or the same with a name for each group. What
            is listed in no group carries no penalty. Without ``groups`` every slice is a group of
            its own, which a vector does not allow.
    """

    axis: int
    groups: Groups

    def __post_init__(self) -> None:
        if self.groups is None:
            return
        if isinstance(self.groups, int):
            require_above(self, "groups", 0)
            return
        groups = self.groups.values() if isinstance(self.groups, Mapping) else self.groups
        try:
            listed = tuple(tuple(map(operator.index, group)) for group in groups)
        except TypeError:
            raise FedcanonError(
                f"the groups of {type(self).__name__} must be a number, lists of indices, or a "
                "dictionary of such lists."
            ) from None
        indices = list(chain(*listed))
        if not (listed and all(listed)) or len(set(indices)) < len(indices) or min(indices) < 0:
            raise FedcanonError(
                f"the groups of {type(self).__name__} must not be empty or overlap, and "
                "their indices start at 0."
            )
        object.__setattr__(self, "groups", listed)

    @cached_property
    def _listed(self) -> tuple[Tensor, Tensor, int]:
        """The listed indices, group after group, the group of each, and the largest index."""
        assert isinstance(self.groups, tuple)
        indices = list(chain(*self.groups))
        owner = [number for number, group in enumerate(self.groups) for _ in group]
        return torch.tensor(indices), torch.tensor(owner), max(indices)

    def index(self, device: torch.device) -> Tensor:
        """The listed indices, group after group."""
        return self._listed[0].to(device)

    def slices(self, x: Tensor) -> Tensor:
        """A view of ``x`` that has what is grouped along dimension 0."""
        return x.movedim(self.axis, 0) if x.dim() > 1 else x.view(-1)

    def _fit(self, shape: Shape) -> tuple[int, int]:
        """How many groups a tensor of this shape has, and how many entries each of its slices.

        Raises:
            FedcanonError: The tensor has no such axis, or the groups do not fit its length.
        """
        name = type(self).__name__
        count, what, other = prod(shape), f"a vector of length {prod(shape)}", ""
        if len(shape) > 1:
            if not -len(shape) <= self.axis < len(shape):
                raise FedcanonError(f"a tensor of shape {tuple(shape)} has no axis {self.axis}.")
            count = shape[self.axis]
            what = f"the {count} slices of a tensor of shape {tuple(shape)} along axis {self.axis}"
            other = " or another axis, or leave groups out and each slice is a group"
        width = prod(shape) // max(1, count)
        if self.groups is None:
            if len(shape) < 2:
                raise FedcanonError(
                    f"{name} acts on {what} and needs groups: the length of consecutive blocks, "
                    "or the indices of each group."
                )
            return count, width
        if isinstance(self.groups, int):
            if count % self.groups:
                raise FedcanonError(
                    f"{name} cannot cut {what} into blocks of {self.groups}: choose a divisor of "
                    f"{count}{other}."
                )
            return count // self.groups, width
        if self._listed[2] >= count:
            raise FedcanonError(
                f"{name} has a group with index {self._listed[2]}, but acts on {what}, where "
                f"indices end at {count - 1}."
            )
        return len(self.groups), width

    def sizes(self, shape: Shape) -> tuple[int, ...]:
        """How many entries each group has in a tensor of this shape."""
        count, width = self._fit(shape)
        if isinstance(self.groups, tuple):
            return tuple(width * len(group) for group in self.groups)
        return (width * (self.groups if isinstance(self.groups, int) else 1),) * count

    def check_shape(self, shape: Shape) -> None:
        self._fit(shape)

    def _rows(self, x: Tensor) -> Tensor:
        slices = self.slices(x)
        if isinstance(self.groups, int):
            return slices.view(len(slices) // self.groups, self.groups, *slices.shape[1:])
        return slices

    def _norms(self, x: Tensor) -> Tensor:
        norms = super()._norms(x)
        if not isinstance(self.groups, tuple):
            return norms
        norms, owner = norms[self.index(x.device)].double(), self._listed[1].to(x.device)
        limits = torch.finfo(norms.dtype)
        size = norms.new_zeros(len(self.groups)).scatter_reduce_(0, owner, norms, "amax")
        size.clamp_(limits.tiny, limits.max)
        squares = (norms / size[owner]).square_()
        total = torch.zeros_like(size).index_add_(0, owner, squares).sqrt_().mul_(size)
        return total.to(x.dtype).clamp_(max=torch.finfo(x.dtype).max)

    def _scale_(self, x: Tensor, factors: Tensor) -> None:
        if isinstance(self.groups, tuple):
            listed = factors[self._listed[1].to(x.device)]
            factors = factors.new_ones(len(self.slices(x)))
            factors[self.index(x.device)] = listed
        super()._scale_(x, factors)

    def penalised(self, x: Tensor) -> list[Tensor]:
        return [self.slices(x)[self.index(x.device)]] if isinstance(self.groups, tuple) else [x]

    def subgradient_bound(self, shape: Shape) -> float:
        return self._outer(shape).subgradient_bound((self._fit(shape)[0],))


@lru_cache(maxsize=32)  # made anew for every prox it would take longer than the prox
def _weighted(kappa: float, weights: tuple[float, ...]) -> WeightedL1:
    return WeightedL1(kappa, weights)


@dataclass(frozen=True)
class GroupLasso(Grouped):
    """Group lasso, whole groups are zero or not.

    h(x) = κ Σ_g w_g ‖x_g‖ over the groups g. Convex, B = κ² Σ_g w_g².

    prox_{ah}(y)_g = max(0, 1 − aκw_g/‖y_g‖) y_g.

    Args:
        kappa: The strength κ ≥ 0.
        axis: The axis whose slices are grouped: 0 for the rows of a matrix, 1 for its columns.
        groups: Which slices, or entries of a vector, form a group: their number in each group,
            the indices of each group, or a dictionary of such indices. By default every slice is
            a group; a vector needs groups.
        weights: A weight w_g ≥ 0 for each group. By default the root of the number of its entries.

    Examples:
        The rows of a matrix, that is, the neurons of a linear layer:

        >>> import torch
        >>> from fedcanon.penalties import GroupLasso
        >>> y = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
        >>> GroupLasso(kappa=1.0, weights=[1, 1]).prox(y, step=1.0)
        tensor([[2.4000, 3.2000],
                [0.0000, 0.0000]])

        Groups of entries of a vector, of which the last is in no group:

        >>> penalty = GroupLasso(kappa=1.0, groups={"size": [0, 2], "age": [1]})
        >>> penalty.prox(torch.tensor([0.3, 2.0, 0.4, 0.1]), step=1.0)
        tensor([0.0000, 1.0000, 0.0000, 0.1000])
    """

    kappa: float = 1e-3
    axis: int = 0
    groups: Groups = None
    weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_above(self, "kappa", 0, or_equal=True)
        if self.weights is not None:
            object.__setattr__(self, "weights", weights_of(self, self.weights))

    def _fit(self, shape: Shape) -> tuple[int, int]:
        count, width = super()._fit(shape)
        if self.weights is not None and len(self.weights) != count:
            raise FedcanonError(
                f"GroupLasso has {len(self.weights)} weights for {count} groups: give one weight "
                "per group."
            )
        return count, width

    @cached_property
    def _roots(self) -> tuple[float, ...]:
        """The weights of listed groups of slices with one entry."""
        assert isinstance(self.groups, tuple)
        return tuple(sqrt(len(group)) for group in self.groups)

    def _outer(self, shape: Shape) -> Separable:
        if self.weights is not None:
            return _weighted(self.kappa, tuple(self.weights))
        if isinstance(self.groups, tuple):
            return _weighted(self.kappa * sqrt(self._fit(shape)[1]), self._roots)
        return L1(self.kappa * sqrt(max(self.sizes(shape), default=0)))

    def penalised(self, x: Tensor) -> list[Tensor]:
        if self.weights is None or all(self.weights):
            return super().penalised(x)
        carries = torch.tensor(self.weights, device=x.device) > 0
        if isinstance(self.groups, tuple):
            chosen = self.index(x.device)[carries[self._listed[1].to(x.device)]]
            return [self.slices(x)[chosen]]
        return [self._rows(x)[carries]]


@dataclass(frozen=True)
class SparseGroupLasso(Penalty):
    """Sparse group lasso, zero groups and zeros inside the others.

    h(x) = κ₁ Σ_j |x_j| + κ₂ Σ_g w_g ‖x_g‖ over the groups g. Both sums leave out what is listed in
    no group. Convex, B = Σ_g (κ₁√|g| + κ₂w_g)².

    prox: first the prox of the ℓ1 term, then that of the group lasso; not in the other order.

    Args:
        kappa1: The strength κ₁ ≥ 0 of the ℓ1 norm.
        kappa2: The strength κ₂ ≥ 0 of the group lasso.
        axis: The axis whose slices are grouped, as for the group lasso.
        groups: Which of them form a group, as for the group lasso.
        weights: A weight w_g ≥ 0 for each group. By default the root of the number of its entries.
    """

    kappa1: float = 1e-3
    kappa2: float = 1e-3
    axis: int = 0
    groups: Groups = None
    weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        require_above(self, "kappa1", 0, or_equal=True)
        require_above(self, "kappa2", 0, or_equal=True)
        for field in ("groups", "weights"):
            object.__setattr__(self, field, getattr(self._between, field))

    @property
    def _within(self) -> L1:
        return L1(self.kappa1)

    @cached_property
    def _between(self) -> GroupLasso:
        return GroupLasso(self.kappa2, self.axis, self.groups, self.weights)

    def value(self, x: Tensor) -> float:
        return self._between.value(x) + sum(self._within.value(part) for part in self.penalised(x))

    def check_shape(self, shape: Shape) -> None:
        self._between.check_shape(shape)

    def _prox_(self, x: Tensor, step: float) -> None:
        if isinstance(self.groups, tuple):
            slices, index = self._between.slices(x), self._between.index(x.device)
            slices[index] = self._within.prox_(slices[index], step)
        else:
            self._within.prox_(x, step)
        self._between.prox_(x, step)

    def penalised(self, x: Tensor) -> list[Tensor]:
        return Grouped.penalised(self._between, x)  # the ℓ1 norm acts where a weight is 0, too

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

    prox multiplies y_g by prox_φ(‖y_g‖)/‖y_g‖.

    Args:
        kappa: The strength κ > 0, as for MCP.
        gamma: γ > 0, as for MCP.
        form: "scaled" or "lambda", as for MCP.
        axis: The axis whose slices are grouped, as for the group lasso.
        groups: Which of them form a group, as for the group lasso.
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
    group.

    prox multiplies y_g by prox_φ(‖y_g‖)/‖y_g‖.

    Args:
        kappa: The strength κ > 0, as for SCAD.
        A: A > 2, as for SCAD.
        form: "scaled" or "lambda", as for SCAD.
        axis: The axis whose slices are grouped, as for the group lasso.
        groups: Which of them form a group, as for the group lasso.
    """

    kappa: float = 1e-3
    A: float = 3.7
    form: Form = "scaled"
    axis: int = 0
    groups: Groups = None

    @cached_property
    def _phi(self) -> SCAD:
        return SCAD(self.kappa, self.A, self.form)
