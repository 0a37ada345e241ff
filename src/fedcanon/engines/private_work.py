"""What a client can do if its records are private."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from fedcanon.engines.work import ClientWork, move_
from fedcanon.errors import FedcanonError
from fedcanon.privacy import RecordPrivacy, bernoulli, gaussian


def refuse_exact(what: str) -> NoReturn:
    """Raise a ``FedcanonError``: sums without noise would tell of single records."""
    raise FedcanonError(
        f"this method asks for {what}, which are exact sums over records, but records that are "
        'private allow noisy gradients only: use FedCanon+ (algorithm.name = "fedcanon+").'
    )


class PrivateWork(ClientWork):
    """The work of a client in which nothing but noisy gradients is computed from its records.

        g̃_i(x) = (Σ_{j in batch} clip(∇ℓ_j(x), C) + N(0, s²C² I)) / (q n_i)

    Each of the n_i records is drawn into the batch with probability q. Both draws come from the
    operating system and never from the seed of the run. Whatever follows from g̃_i, such as control
    variables, an upload or a prox, tells no more of a record.
    """

    def __init__(self, privacy: RecordPrivacy, *work: Any) -> None:
        """Begin the work; ``work`` are the arguments of ``ClientWork``."""
        super().__init__(*work)
        self._privacy, self._steps = privacy, 0

    def gradient(self, x: Tensor) -> Tensor:
        """g̃_i(x) on a new batch."""
        privacy, objective = self._privacy, self._objective
        self._steps += 1
        if self._steps > privacy.steps:
            raise FedcanonError(
                f"the privacy of records is accounted for {privacy.steps} gradient steps in a "
                "round, but this round has more: use a method with a fixed number of local steps, "
                "and the same number for privacy."
            )
        batch = None
        if privacy.sampling < 1:
            drawn = bernoulli(objective.samples, privacy.sampling)
            batch = torch.from_numpy(np.flatnonzero(drawn))
        total = objective.clipped_sum(x, batch, privacy.clip)
        total += gaussian(total, privacy.noise * privacy.clip)
        return total.div_(privacy.sampling * objective.samples)

    def _descend_(
        self, x: Tensor, batches: Sequence[Tensor | None], step: float, shift: Tensor | None
    ) -> None:
        for _ in batches:
            move_(x, step, self.gradient(x))
            move_(x, step, shift)

    def full_gradient(self, x: Tensor) -> NoReturn:
        """Refuse.

        Raises:
            FedcanonError: Always.
        """
        refuse_exact("full gradients")

    def expansion(self, x: Tensor) -> NoReturn:
        """Refuse.

        Raises:
            FedcanonError: Always.
        """
        refuse_exact("values and second derivatives")

    def solve(
        self, centre: Tensor, eta: float, start: Tensor, *, tolerance: float, **how: Any
    ) -> Tensor:
        """prox_{eta·f_i}(centre) by so many noisy steps.

        Raises:
            FedcanonError: It is to be solved to a tolerance.
        """
        if tolerance:
            refuse_exact("solutions to a tolerance")
        return super().solve(centre, eta, start, tolerance=tolerance, **how)
