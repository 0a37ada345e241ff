"""Rules for uploads of which some may be bad."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcanon.engines.aggregation import Aggregation, Mean
from fedcanon.engines.base import Verdict
from fedcanon.engines.client import BUFFERS
from fedcanon.engines.summation import Vectors
from fedcanon.errors import FedcanonError, unknown_name
from fedcanon.robustness import RULES, Combination


@dataclass(frozen=True)
class Robust(Aggregation):
    """Combines uploads so that some bad clients cannot carry the model away.

    For a ``Cached`` method such as FedCanon+, the rule is over the vectors of all clients that the
    server knows, also of those that do not take part. For others it is over the uploads of a round.

    Args:
        rule: The name of the rule, one of ``fedcanon.robustness.RULES``.
        byzantine: The number B of clients that may be bad; 0 is the mean.

    Raises:
        FedcanonError: There is no such rule, or B is negative.
    """

    rule: str = "filter"
    byzantine: int = 0

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise FedcanonError(unknown_name("robust rule", self.rule, RULES))
        if self.byzantine < 0:
            raise FedcanonError(f"robust.byzantine cannot be {self.byzantine}: use 0 or more.")

    def simplest(self) -> Aggregation:
        return Mean() if self.byzantine == 0 or self.rule == "mean" else self

    def check(self, weights: Sequence[float]) -> None:
        clients, bad = len(weights), self.byzantine
        if len(set(weights)) > 1:
            raise FedcanonError(
                "a robust rule cannot weigh clients differently, because a bad one could claim any "
                'weight: use clients.weights = "uniform".'
            )
        if clients < 2 * bad + 1:
            raise FedcanonError(
                f"{bad} bad clients cannot be outvoted by {clients - bad} others: use at least "
                f"{2 * bad + 1} clients, or a smaller robust.byzantine."
            )
        if clients < 4 * bad:
            warnings.warn(
                f"{bad} of {clients} clients may be bad: robust rules are weak where that is more "
                "than a quarter.",
                RuntimeWarning,
                stacklevel=2,
            )

    def check_participants(self, count: int) -> None:
        """Raise a ``FedcanonError`` if bad clients could be the majority of so many in a round."""
        if self.byzantine and self.rule != "mean" and count < 2 * self.byzantine + 1:
            raise FedcanonError(
                f"{self.byzantine} bad clients could outvote the others among {count} participants "
                f"of a round: use at least {2 * self.byzantine + 1}, or FedCanon+, whose rule is "
                "over all clients."
            )

    def finish(self, parts: Sequence[Vectors], weights: Sequence[float]) -> Vectors:
        return self.judged(range(len(parts)), parts)[0]

    def judged(self, clients: Sequence[int], parts: Sequence[Vectors]) -> tuple[Vectors, Verdict]:
        """Return the combined uploads of some clients, each name by itself, and the verdict."""
        found = {name: self.combined([part[name] for part in parts]) for name in parts[0]}
        seen = [one for name, one in found.items() if name != BUFFERS]
        verdict = Verdict.of(clients, seen)
        return {name: one.vector for name, one in found.items()}, verdict

    def combined(self, vectors: Sequence[Tensor]) -> Combination:
        """Combine some vectors; of few, only a minority is taken to be bad."""
        bad = min(self.byzantine, (len(vectors) - 1) // 2)
        return RULES[self.rule](torch.stack(list(vectors)), bad)
