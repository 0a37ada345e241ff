"""A compressor that saves no bytes: it limits what one client can do to the server."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcanon.compression.base import Compressor
from fedcanon.errors import FedcanonError

_MARGIN = 1e-6


@dataclass(frozen=True)
class Clip(Compressor):
    """C(u) = u·min(1, limit/‖u‖), so that ‖C(u)‖ ≤ limit.

    ‖C(u) − u‖ = max(0, ‖u‖ − limit): no single δ holds for all u, since 1 − (1 − limit/‖u‖)²
    goes to 0 as ‖u‖ grows. But every clipped round takes the length ``limit`` off m − v_i, and in
    FedCanon+ that vector goes to 0: clipping comes to an end, and C is the identity from then on.
    δ = 1 is stated for the vectors up to the limit.

    What travels: all d values.
    """

    limit: float = 1.0

    def __post_init__(self) -> None:
        if not (self.limit > 0 and math.isfinite(self.limit)):
            raise FedcanonError(f"Clip needs a positive, finite limit, not {self.limit:g}.")

    @property
    def draws(self) -> bool:
        return False

    def encode(self, u: Tensor, rng: np.random.Generator) -> dict[str, Tensor]:
        norm = float(torch.linalg.vector_norm(u, dtype=torch.float64))
        if norm <= self.limit:
            return {"values": u}
        # A server that refuses what exceeds the limit must not refuse a rounding error.
        return {"values": u * (self.limit / norm * (1 - _MARGIN))}

    def decode(self, parts: dict[str, Tensor], size: int) -> Tensor:
        return parts["values"]

    def contraction(self, size: int) -> float:
        return 1.0

    @property
    def norm_bound(self) -> float:
        return self.limit


@dataclass(frozen=True)
class PrivateClip(Clip):
    """The clip of private runs, which makes 0 of a vector that is not finite.

    Otherwise a run that ends with an error would tell that one client has such an update.
    """

    def encode(self, u: Tensor, rng: np.random.Generator) -> dict[str, Tensor]:
        return super().encode(u if bool(u.isfinite().all()) else torch.zeros_like(u), rng)
