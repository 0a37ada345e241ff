"""Updates in fixed point: whole numbers in Z_2³², whose sums no mask and no order can change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcanon.compression import Clip, Compressor, Encoded, Identity, PrivateClip
from fedcanon.deployment.secure.masks import Ring
from fedcanon.engines import Rules
from fedcanon.errors import DivergenceError
from fedcanon.privacy import ClientPrivacy
from fedcanon.privacy.noise import discrete_gaussian

FIRST_SCALE = 4.0
"""The largest entry of an update before anything is known of their sizes."""

_FACTOR, WINDOW = 16.0, 5
"""The scale is so many times the largest ‖b‖ of so many rounds."""

_SMALLEST = 1e-100
"""Scales below this would not leave room for smaller numbers."""

_SPARE = 8.0
"""So many standard deviations of the noise find room in the ring beside the updates."""

UPLOAD, VALUES = "u", "values"
"""The one vector of an upload that can be in a secure sum, and its part that travels."""


def entry_limit(clients: int) -> int:
    """Return the largest |k| of an entry, so that a sum over so many clients does not wrap."""
    return (2**31 - 1) // clients


def limit_of(rules: Rules) -> float:
    """Return the largest norm of an update of an honest client; infinite without a clip."""
    privacy = rules.privacy
    return privacy.clip if isinstance(privacy, ClientPrivacy) else rules.compressor.norm_bound


def noise_of(rules: Rules) -> float:
    """Return the noise multiplier s of a sum; 0 without privacy of clients."""
    return rules.privacy.noise if isinstance(rules.privacy, ClientPrivacy) else 0.0


def scale_of(rules: Rules, clients: int, minimum: int, norms: Sequence[float]) -> float:
    """Return the largest entry r that an update may have in a round.

    Without noise, r follows ‖b‖, which falls as the run converges, and with it the error of the
    fixed point. Too small an r only slows a client down: what it could not send stays in m − v_i.
    With noise it is fixed, so that n updates of norm τ and the noise of all find room in the ring.

    Args:
        rules: The settings of the run.
        clients: How many clients a sum can have.
        minimum: The smallest number of clients whose sum counts.
        norms: ‖b‖ of the last rounds.
    """
    limit, noise = limit_of(rules), noise_of(rules)
    if noise:
        deviation = noise * limit * math.sqrt(clients / minimum)  # all shares of the noise
        return (clients * limit + _SPARE * deviation) / 2**31 * entry_limit(clients)
    first = FIRST_SCALE if math.isinf(limit) else limit
    largest = max(norms[-WINDOW:], default=0.0)
    return min(first, max(_FACTOR * largest, _SMALLEST)) if largest else first


@dataclass(frozen=True)
class FixedPoint(Compressor):
    """C(u) = k·r/M/w with whole numbers k = rint(w·u·M/r), for one client in one round.

    u is clipped, and scaled as a whole if an entry of w·u exceeds r. With noise, k travels with a
    discrete Gaussian share, and the client moves by its k without it. The shares of ``minimum``
    clients together have the deviation that the sum needs.

    Args:
        scale: r, the largest entry.
        clients: How many clients a sum can have; M = ⌊(2³¹ − 1)/clients⌋.
        weight: w, the client's weight in the sum, in (0, 1].
        clip: What limits the norm of an update.
        noise: The noise multiplier s.
        minimum: The smallest number of clients whose sum counts.
        dtype: The precision of u.
    """

    scale: float
    clients: int
    weight: float = 1.0
    clip: Compressor = field(default_factory=Identity)
    noise: float = 0.0
    minimum: int = 1
    dtype: torch.dtype = torch.float64

    @classmethod
    def under(
        cls, rules: Rules, scale: float, clients: int, weight: float, minimum: int, like: Tensor
    ) -> FixedPoint:
        """Return the fixed point of a client under the rules of a run."""
        limit, private = limit_of(rules), isinstance(rules.privacy, ClientPrivacy)
        kind = PrivateClip if private else Clip
        clip = Identity() if math.isinf(limit) else kind(limit)
        return cls(scale, clients, weight, clip, noise_of(rules), minimum, like.dtype)

    @property
    def step(self) -> float:
        """The distance of two neighbouring numbers."""
        return self.scale / entry_limit(self.clients)

    def __call__(self, u: Tensor, rng: np.random.Generator) -> Encoded:
        """Return what travels and, if there is noise, the vector without it as ``kept``."""
        k = self._whole(self.clip(u, rng).vector)
        if not self.noise:
            return self._as_sent(k)
        # Rounding can make an update longer than its clip, by half a step in every entry.
        sensitivity = self.clip.norm_bound + self.step * math.sqrt(len(k)) / 2
        share = self.noise * sensitivity / math.sqrt(self.minimum) / self.step
        sent = self._as_sent(k + discrete_gaussian(len(k), share))
        return Encoded(sent.parts, sent.vector, self._as_sent(k).vector)

    def _whole(self, u: Tensor) -> NDArray[np.int64]:
        weighted = self.weight * u.detach().cpu().double().numpy()
        largest = float(np.abs(weighted).max(initial=0.0))
        if not math.isfinite(largest):
            raise DivergenceError(
                "the update is not finite: use smaller steps (beta, alpha), or check the data for "
                "missing values."
            )
        scaled = weighted * min(1.0, self.scale / largest) if largest else weighted
        limit = entry_limit(self.clients)
        return np.clip(np.rint(scaled / self.step), -limit, limit).astype(np.int64)

    def _as_sent(self, k: NDArray[np.int64]) -> Encoded:
        parts = encoded(k.astype(np.uint32)).parts
        return Encoded(parts, self.decode(parts, len(k)))

    def encode(self, u: Tensor, rng: np.random.Generator) -> dict[str, Tensor]:
        return self(u, rng).parts

    def decode(self, parts: dict[str, Tensor], size: int) -> Tensor:
        return (parts[VALUES].double() * self.step / self.weight).to(self.dtype)

    def contraction(self, size: int) -> float:
        return 1.0

    @property
    def norm_bound(self) -> float:
        return self.clip.norm_bound


def encoded(ring: Ring) -> Encoded:
    """Return an element of the ring as it travels."""
    values = torch.from_numpy(ring.view(np.int32))
    return Encoded({VALUES: values}, values)


def total_of(ring: Ring, scale: float, clients: int) -> NDArray[np.float64]:
    """Return the sum that an element of the ring stands for."""
    return ring.view(np.int32).astype(np.float64) * (scale / entry_limit(clients))


def rounding_of(scale: float, clients: int, size: int) -> float:
    """Return how much longer the fixed point can make an update of so many entries."""
    return scale / entry_limit(clients) * math.sqrt(size) / 2
