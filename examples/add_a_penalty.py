"""A penalty of your own: ℓ1 with one weight for positive and another for negative entries."""

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from fedcanon import Penalty, train
from fedcanon.penalties import Shape, require_above


@dataclass(frozen=True)
class AsymmetricL1(Penalty):
    """ℓ1 norm with two slopes.

    h(x) = Σ_j max(κ₊ x_j, −κ₋ x_j). Convex, B = d max(κ₊, κ₋)².

    prox_{ah}(y) = y − min(max(y, −aκ₋), aκ₊), coordinate by coordinate.
    """

    positive: float = 1e-3
    negative: float = 1e-2

    def __post_init__(self) -> None:
        require_above(self, "positive", 0, or_equal=True)
        require_above(self, "negative", 0, or_equal=True)

    def value(self, x: Tensor) -> float:
        return float(torch.maximum(self.positive * x, -self.negative * x).sum())

    def _prox_(self, x: Tensor, step: float) -> None:
        x.sub_(x.clamp(-step * self.negative, step * self.positive))

    def subgradient_bound(self, shape: Shape) -> float:
        return prod(shape) * max(self.positive, self.negative) ** 2


def check_prox(penalty: Penalty, step: float) -> None:
    """Compare the prox of single numbers with the best point of a fine grid."""
    grid = torch.linspace(-5, 5, 10_001, dtype=torch.float64)
    values = torch.tensor([penalty.value(point) for point in grid], dtype=torch.float64)
    for y in torch.linspace(-3, 3, 13, dtype=torch.float64):
        best = grid[torch.argmin(values + (grid - y) ** 2 / (2 * step))]
        assert abs(float(penalty.prox(y, step) - best)) < 1e-3, f"the prox is wrong at {y}"


if __name__ == "__main__":
    check_prox(AsymmetricL1(positive=0.5, negative=2.0), step=0.7)
    result = train(penalty="examples.add_a_penalty:AsymmetricL1", model="linear", rounds=40)
    weights = result.model[1].weight
    print(f"accuracy {result.last.test['accuracy']:.3f}, of {weights.numel()} weights", end=" ")
    print(f"{int((weights > 0).sum())} are positive and {int((weights < 0).sum())} negative")
