"""The mean of a private round: a sum of clipped updates with noise, by a trusted server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedcanon.engines.aggregation import Mean
from fedcanon.engines.summation import Vectors
from fedcanon.errors import FedcanonError
from fedcanon.privacy import gaussian


@dataclass(frozen=True)
class NoisyMean(Mean):
    """(Σ_S upload_i + N(0, σ² I))/n, with noise from the system's entropy.

    If participants are drawn independently, their number is secret: n is the expected number qN
    then, and there is a result even if nobody was drawn.

    Args:
        deviation: σ.
        nothing: An upload of zeros.
        expected: The expected number of participants, if the true one is secret.
    """

    deviation: float
    nothing: Vectors
    expected: float | None = None

    def check(self, weights: Sequence[float]) -> None:
        if set(weights) != {1.0}:
            raise FedcanonError(
                "privacy of clients needs the same weight for all, because a weight says how many "
                'samples a client has: use clients.weights = "uniform".'
            )

    def finish(self, parts: Sequence[Vectors], weights: Sequence[float]) -> Vectors:
        [total] = parts or [self.nothing]
        n = self.expected or len(weights)
        return {name: (v + gaussian(v, self.deviation)) / n for name, v in total.items()}

    def share(self, weights: Sequence[float], total: float) -> float:
        return (self.expected or len(weights)) / total
