"""Compressors that send every entry with a few bits."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedcanon.compression.base import Compressor
from fedcanon.errors import FedcanonError


@dataclass(frozen=True)
class Quantise(Compressor):
    """Stochastic quantisation (QSGD) in buckets, divided by 1 + ω.

    In a bucket w of u, Q(w)_j = (‖w‖/s)·⌊s w_j/‖w‖ + U_j⌋ with s = 2^(bits−1) − 1 levels and U_j
    uniform on [0, 1). Q is unbiased with E‖Q(w) − w‖² ≤ ω‖w‖², ω = min(b/(4s²), √b/s) for b entries
    in a bucket. C = Q/(1 + ω) has the error (ω² + ω)/(1 + ω)²·‖w‖² at most, so δ = 1/(1 + ω);
    Q itself need not be a contraction when ω ≥ 1.

    ω grows with the number of entries that share a norm. One norm for the whole vector would let
    δ fall like s/√d; with buckets it does not depend on d, for one more float per bucket.

    What travels: one norm per bucket, and the d levels packed into ⌈d·bits/8⌉ bytes.

    Examples:
        >>> import numpy as np
        >>> import torch
        >>> sent = Quantise(bits=4)(torch.full((256,), 2.0), np.random.default_rng())
        >>> sent.bytes  # the norm, and half a byte for each of 256 entries
        132
    """

    bits: int = 4
    bucket: int = 256

    def __post_init__(self) -> None:
        if self.bits not in (2, 4, 8):
            raise FedcanonError(f"Quantise needs 2, 4 or 8 bits, not {self.bits}.")
        if self.bucket < 1:
            raise FedcanonError(f"Quantise needs a bucket of at least 1 entry, not {self.bucket}.")

    @property
    def _levels(self) -> int:
        return (1 << (self.bits - 1)) - 1

    def encode(self, u: Tensor, rng: np.random.Generator) -> dict[str, Tensor]:
        s = self._levels
        buckets = self._in_buckets(u)
        # In double precision, because the squares of small single-precision numbers are 0.
        norms = torch.linalg.vector_norm(buckets, dim=1, keepdim=True, dtype=torch.float64)
        norms = norms.to(u.dtype)
        levels = (buckets / norms.where(norms > 0, 1)).mul_(s)
        levels += torch.from_numpy(rng.random(levels.shape, dtype=np.float32))
        codes = levels.floor_().clamp_(-s, s).add_(s).to(torch.uint8)
        return {"norms": norms.view(-1), "codes": _pack(codes.view(-1)[: u.numel()], self.bits)}

    def decode(self, parts: dict[str, Tensor], size: int) -> Tensor:
        scales = parts["norms"] * (self.contraction(size) / self._levels)
        levels = _unpack(parts["codes"], self.bits, size).to(scales.dtype).sub_(self._levels)
        return self._in_buckets(levels).mul_(scales[:, None]).view(-1)[:size]

    def contraction(self, size: int) -> float:
        b, s = min(self.bucket, size), self._levels
        return 1 / (1 + min(b / (4 * s**2), math.sqrt(b) / s))

    def _in_buckets(self, x: Tensor) -> Tensor:
        """A copy of ``x`` with a bucket in every row, the last one filled up with zeros."""
        length = min(self.bucket, x.numel())
        return functional.pad(x, (0, -x.numel() % length)).view(-1, length)


@dataclass(frozen=True)
class Sign(Compressor):
    """The signs, times the mean magnitude: C(u) = sign(u)·‖u‖₁/d.

    With σ_j = ±1 such that σ_j u_j = |u_j|, and c = ‖u‖₁/d,

        ‖cσ − u‖² = c²d − 2c‖u‖₁ + ‖u‖² = ‖u‖² − ‖u‖₁²/d

    whichever sign is given to a zero (here +1). ‖u‖₁ ≥ ‖u‖ gives δ = 1/d, attained when u has one
    entry other than 0; on a vector of independent Gaussian entries it is about 2/π.

    What travels: one number and ⌈d/8⌉ bytes.
    """

    @property
    def draws(self) -> bool:
        return False

    def encode(self, u: Tensor, rng: np.random.Generator) -> dict[str, Tensor]:
        return {"scale": u.abs().mean().view(1), "signs": _pack((u >= 0).to(torch.uint8), bits=1)}

    def decode(self, parts: dict[str, Tensor], size: int) -> Tensor:
        signs = _unpack(parts["signs"], bits=1, size=size).to(parts["scale"].dtype)
        return signs.mul_(2).sub_(1).mul_(parts["scale"])

    def contraction(self, size: int) -> float:
        return 1 / size


def _pack(codes: Tensor, bits: int) -> Tensor:
    """Codes below 2^bits, 8/bits of them in a byte.

    Of n bytes, byte j holds the codes j, j + n, j + 2n, ...: contiguous memory for both ways.
    """
    each = 8 // bits
    planes = functional.pad(codes, (0, -codes.numel() % each)).view(each, -1)
    packed = planes[0].clone()
    for place in range(1, each):
        packed |= planes[place] << place * bits
    return packed


def _unpack(packed: Tensor, bits: int, size: int) -> Tensor:
    """The first ``size`` codes that ``_pack`` put into these bytes."""
    places = range(8 // bits)
    return torch.cat([(packed >> place * bits) & (2**bits - 1) for place in places])[:size]
