"""What is protected in a run, and by how much."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from fedcanon.errors import FedcanonError
from fedcanon.privacy.accounting import Accountant, epsilon, noise_multiplier


@dataclass(frozen=True)
class Privacy(ABC):
    """A guarantee of (ε, δ)-differential privacy, and the noise that it needs.

    Args:
        clip: The largest norm of one contribution.
        noise: The noise multiplier s: sums get Gaussian noise of deviation s·clip.
        delta: δ, the probability with which the guarantee may fail.
        budget: The largest ε that a run may spend.
        sampling: The probability with which a contribution is drawn into a release.
        accountant: How sampled releases are composed; see ``privacy.accounting``.
        rounds: How many rounds are planned. The model is averaged over the second half of them;
            None does not average it.

    Raises:
        FedcanonError: One of them is out of range.
    """

    clip: float
    noise: float
    delta: float
    budget: float = math.inf
    sampling: float = 1.0
    accountant: Accountant = "rdp"
    rounds: int | None = None

    protects: ClassVar[str]
    """Whose presence is hidden: "client" or "record"."""

    def __post_init__(self) -> None:
        if not 0 < self.clip < math.inf:
            raise FedcanonError(f"privacy.clip must be positive and finite, not {self.clip:g}.")
        self.spent(1)  # raises an error if another number is out of range

    @property
    @abstractmethod
    def releases(self) -> int:
        """How many noisy sums a round releases."""

    def spent(self, rounds: int) -> float:
        """Return the ε that so many rounds have spent."""
        releases = self.releases * rounds
        return epsilon(self.noise, releases, self.delta, self.sampling, self.accountant)

    def allows(self, rounds: int) -> bool:
        """Tell whether so many rounds are within the budget."""
        return self.spent(rounds) <= self.budget * (1 + 1e-9)

    @classmethod
    def within(cls, budget: float, rounds: int, **settings: Any) -> Self:
        """Return the settings whose noise lets so many rounds spend the budget ε.

        ``settings`` are the other arguments, without the noise.
        """
        free = cls(noise=1.0, budget=budget, **settings)
        noise = noise_multiplier(
            budget, free.releases * rounds, free.delta, free.sampling, free.accountant
        )
        return cls(noise=noise, budget=budget, rounds=rounds, **settings)


@dataclass(frozen=True)
class ClientPrivacy(Privacy):
    """Hides whether a client takes part at all, whatever its data.

    Each client's update is clipped to norm τ = ``clip``, and the sum of a round gets noise. The
    server, or the clients together in a secure sum, add it. With ``sampling`` below 1 the server
    draws each client into a round with that probability, in secret.

    Args:
        forgetting: The part λ of its state that every client forgets in a round; it limits how far
            noise can carry the mean of all states away.
    """

    protects = "client"

    forgetting: float = 0.02

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.forgetting <= 1:
            raise FedcanonError(f"privacy.forgetting must be in [0, 1], not {self.forgetting:g}.")

    @property
    def releases(self) -> int:
        return 1


@dataclass(frozen=True)
class RecordPrivacy(Privacy):
    """Hides whether a record is among the data of a client, from the server and everybody else.

    In every local step, the gradient of each record is clipped to norm C = ``clip``, and the sum
    gets noise before anything else is computed from it.

    Args:
        steps: How many local steps a round has.
    """

    protects = "record"

    steps: int = 1

    @property
    def releases(self) -> int:
        return self.steps
