"""Penalties that are sums over coordinates, h(x) = Σ_j φ(x_j), with a convex φ."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch
from torch import Tensor

from fedcanon.errors import FedcanonError
from fedcanon.penalties import kernels
from fedcanon.penalties.base import Penalty, Shape, require_above, weights_of


class Separable(Penalty):
    """h(x) = Σ_j φ(x_j): the prox is a formula in one number, applied to every coordinate.

    ``_formula`` states it in tensor code, which runs on every device. ``_kernel`` names a compiled
    function that does the same in one pass over the memory of the CPU, with its constants for
    this step.
    """

    is_separable = True

    @abstractmethod
    def _formula(self, y: Tensor, step: float) -> Tensor:
        """The prox of every coordinate, as a new tensor."""

    @abstractmethod
    def _kernel(self, step: float) -> tuple[kernels.Kernel, tuple[float | kernels.Vector, ...]]:
        """The compiled kernel and its constants."""

    def _prox_(self, x: Tensor, step: float) -> None:
        if kernels.runs_on(x):
            kernel, constants = self._kernel(step)
            kernels.apply(kernel, x, constants)
        else:
            x.copy_(self._formula(x, step))


class _Shrinking(Separable):
    """A penalty whose prox is (y − clip(gain·y, −t, t))·scale."""

    @abstractmethod
    def _constants(self, step: float) -> tuple[float, float, float]:
        """t, gain and scale."""

    def _formula(self, y: Tensor, step: float) -> Tensor:
        t, gain, scale = self._constants(step)
        return (y - (gain * y).clamp_(-t, t)).mul_(scale)

    def _kernel(self, step: float) -> tuple[kernels.Kernel, tuple[float, ...]]:
        return kernels.shrink, self._constants(step)


@dataclass(frozen=True)
class L1(_Shrinking):
    """ℓ1 norm, the lasso penalty.

    h(x) = κ Σ_j |x_j|. Convex, B = d κ².

    prox_{ah}(y) = sign(y) max(|y| − aκ, 0), coordinate by coordinate.

    Args:
        kappa: The strength κ ≥ 0.

    Examples:
        >>> import torch
        >>> from fedcanon.penalties import L1
        >>> penalty = L1(kappa=0.5)
        >>> y = torch.tensor([3.0, -0.2, 1.0])
        >>> penalty.prox(y, step=1.0)
        tensor([2.5000, 0.0000, 0.5000])
        >>> penalty.value(torch.tensor([2.0, 0.0, -2.0]))
        2.0
    """

    kappa: float = 1e-3

    def __post_init__(self) -> None:
        require_above(self, "kappa", 0, or_equal=True)

    def value(self, x: Tensor) -> float:
        return self.kappa * float(x.abs().sum())

    def _constants(self, step: float) -> tuple[float, float, float]:
        return step * self.kappa, 1.0, 1.0

    def subgradient_bound(self, shape: Shape) -> float:
        return prod(shape) * self.kappa**2


@dataclass(frozen=True)
class WeightedL1(Separable):
    """Weighted ℓ1 norm, the adaptive lasso.

    h(x) = κ Σ_j w_j |x_j|. Convex, B = κ² Σ_j w_j². An entry of weight 0 carries no penalty.

    prox_{ah}(y)_j = sign(y_j) max(|y_j| − aκw_j, 0).

    Args:
        kappa: The strength κ ≥ 0 of all weights together.
        weights: A weight w_j ≥ 0 for every entry of x, row after row where x is a matrix: a
            sequence, an array or a tensor.

    Examples:
        >>> import torch
        >>> from fedcanon.penalties import WeightedL1
        >>> WeightedL1(0.5, [0, 1, 4]).prox(torch.tensor([1.0, 1.0, 1.0]), step=1.0)
        tensor([1.0000, 0.5000, 0.0000])
    """

    kappa: float
    weights: Sequence[float]

    def __post_init__(self) -> None:
        require_above(self, "kappa", 0, or_equal=True)
        object.__setattr__(self, "weights", weights_of(self, self.weights))

    @cached_property
    def _vector(self) -> Tensor:
        return torch.tensor(self.weights, dtype=torch.float64)

    def _shaped(self, x: Tensor) -> Tensor:
        """The weights in the shape, precision and place of ``x``."""
        self.check_shape(x.shape)
        return self._vector.to(x).view(x.shape)

    def check_shape(self, shape: Shape) -> None:
        if prod(shape) != len(self.weights):
            raise FedcanonError(
                f"WeightedL1 has {len(self.weights)} weights, but the tensor it acts on has "
                f"{prod(shape)} entries: give one weight per entry."
            )

    def value(self, x: Tensor) -> float:
        return self.kappa * float((self._shaped(x) * x.abs()).sum())

    def _formula(self, y: Tensor, step: float) -> Tensor:
        level = step * self.kappa * self._shaped(y)
        return y - torch.clamp(y, -level, level)

    def _kernel(self, step: float) -> tuple[kernels.Kernel, tuple[float | kernels.Vector, ...]]:
        return kernels.soft_each, (step * self.kappa, self._vector.numpy())

    def penalised(self, x: Tensor) -> list[Tensor]:
        return [x] if all(self.weights) else [x[self._vector.view(x.shape).to(x.device) > 0]]

    def subgradient_bound(self, shape: Shape) -> float:
        self.check_shape(shape)
        return self.kappa**2 * sum(weight**2 for weight in self.weights)


@dataclass(frozen=True)
class ElasticNet(_Shrinking):
    """Elastic net, ℓ1 plus ridge.

    h(x) = κ₁ Σ_j |x_j| + (κ₂/2) Σ_j x_j². Convex, B infinite.

    prox_{ah}(y) = sign(y) max(|y| − aκ₁, 0)/(1 + aκ₂).

    Args:
        kappa1: The strength κ₁ ≥ 0 of the ℓ1 norm.
        kappa2: The strength κ₂ ≥ 0 of the ridge.
    """

    kappa1: float = 1e-3
    kappa2: float = 1e-3

    def __post_init__(self) -> None:
        require_above(self, "kappa1", 0, or_equal=True)
        require_above(self, "kappa2", 0, or_equal=True)

    def value(self, x: Tensor) -> float:
        return self.kappa1 * float(x.abs().sum()) + self.kappa2 / 2 * float(x.square().sum())

    def _constants(self, step: float) -> tuple[float, float, float]:
        return step * self.kappa1, 1.0, 1 / (1 + step * self.kappa2)


@dataclass(frozen=True)
class Ridge(_Shrinking):
    """Squared ℓ2 norm, ridge or weight decay.

    h(x) = (κ/2) Σ_j x_j². Convex, B infinite.

    prox_{ah}(y) = y/(1 + aκ).

    Args:
        kappa: The strength κ ≥ 0.
    """

    kappa: float = 1e-3

    def __post_init__(self) -> None:
        require_above(self, "kappa", 0, or_equal=True)

    def value(self, x: Tensor) -> float:
        return self.kappa / 2 * float(x.square().sum())

    def _constants(self, step: float) -> tuple[float, float, float]:
        return 0.0, 1.0, 1 / (1 + step * self.kappa)


@dataclass(frozen=True)
class Huber(_Shrinking):
    """Huber penalty, quadratic near 0 and linear beyond.

    h(x) = κ Σ_j φ(|x_j|) with φ(m) = m²/(2δ) for m ≤ δ and m − δ/2 beyond. Convex, B = d κ².

    With t = aκ: prox is yδ/(δ + t) for |y| ≤ δ + t, y − t sign(y) beyond.

    Args:
        kappa: The strength κ ≥ 0, the slope of the linear part.
        delta: The size δ > 0 of an entry at which the quadratic part ends.
    """

    kappa: float = 1e-3
    delta: float = 0.1

    def __post_init__(self) -> None:
        require_above(self, "kappa", 0, or_equal=True)
        require_above(self, "delta", 0)

    def value(self, x: Tensor) -> float:
        m = x.abs()
        near = m.clamp(max=self.delta)
        return self.kappa * float((m - near + near.square() / (2 * self.delta)).sum())

    def _constants(self, step: float) -> tuple[float, float, float]:
        t = step * self.kappa
        return t, t / (self.delta + t), 1.0

    def subgradient_bound(self, shape: Shape) -> float:
        return prod(shape) * self.kappa**2
