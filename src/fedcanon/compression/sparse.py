"""Compressors that send k of the d entries as they are and leave the others where they were."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcanon.compression.base import Compressor
from fedcanon.errors import FedcanonError


@dataclass(frozen=True)
class _Sparse(Compressor):
    """C(u) = u on k of the d entries and 0 elsewhere; k = ⌊fraction·d + ½⌋, but at least 1."""

    fraction: float = 0.05

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise FedcanonError(
                f"{type(self).__name__} needs a fraction above 0 and at most 1, "
                f"not {self.fraction:g}."
            )

    def _kept(self, size: int) -> int:
        # Rounded, not ⌈·⌉, because 0.07·100 is a little more than 7 in floating point.
        return max(1, math.floor(self.fraction * size + 0.5))

    def contraction(self, size: int) -> float:
        return self._kept(size) / size


@dataclass(frozen=True)
class TopK(_Sparse):
    """The k entries that are largest in magnitude; among equal ones, those that come first.

    k = ⌊fraction·d + ½⌋, but at least 1. The entries left out are the d − k smallest squares of d,
    so that ‖C(u) − u‖² ≤ (1 − k/d)‖u‖²: δ = k/d for every u, without an expectation.

    What travels: k values, and their indices in the smallest unsigned type that holds d − 1.

    Examples:
        >>> import numpy as np
        >>> import torch
        >>> sent = TopK(0.5)(torch.tensor([1.0, -4.0, 0.5, 3.0]), np.random.default_rng())
        >>> sent.vector
        tensor([ 0., -4.,  0.,  3.])
        >>> sent.bytes  # two values of four bytes, two indices of one
        10
    """

    @property
    def draws(self) -> bool:
        return False

    def encode(self, u: Tensor, rng: np.random.Generator) -> dict[str, Tensor]:
        k, size = self._kept(u.numel()), u.numel()
        # What is not a number counts as infinite: it must travel, so that the server can see it.
        magnitude = u.abs().nan_to_num_(nan=math.inf, posinf=math.inf).numpy()
        # numpy selects several times faster than torch, but no selection says what it does to ties.
        smallest_kept = np.partition(magnitude, size - k)[size - k]
        larger = np.flatnonzero(magnitude > smallest_kept)
        tied = np.flatnonzero(magnitude == smallest_kept)[: k - len(larger)]
        indices = torch.from_numpy(np.sort(np.concatenate([larger, tied])))
        return {"values": u[indices], "indices": indices.to(index_type(size))}

    def decode(self, parts: dict[str, Tensor], size: int) -> Tensor:
        return scatter(parts["values"], parts["indices"].to(torch.int64), size)


@dataclass(frozen=True)
class RandomK(_Sparse):
    """k entries drawn without replacement, all subsets being equally likely.

    k = ⌊fraction·d + ½⌋, but at least 1. An entry is left out with probability 1 − k/d, so that
    E‖C(u) − u‖² = (1 − k/d)‖u‖²: δ = k/d. The factor d/k that would make C unbiased is left out
    on purpose: with it the error is (d/k − 1)‖u‖², and from k ≤ d/2 on C is no contraction.

    What travels: k values and the 8 bytes of a seed from which both sides draw the same indices.
    """

    def encode(self, u: Tensor, rng: np.random.Generator) -> dict[str, Tensor]:
        seed = torch.from_numpy(rng.integers(2**63, size=1))
        return {"values": u[_drawn(seed, self._kept(u.numel()), u.numel())], "seed": seed}

    def decode(self, parts: dict[str, Tensor], size: int) -> Tensor:
        values = parts["values"]
        return scatter(values, _drawn(parts["seed"], values.numel(), size), size)


def _drawn(seed: Tensor, k: int, size: int) -> Tensor:
    """The places of the k smallest of ``size`` random 64-bit numbers, in ascending order."""
    # numpy promises the raw stream in all its versions, but not the draws of Generator.choice;
    # client and server may not have the same version.
    keys = np.random.PCG64(int(seed)).random_raw(size)
    return torch.from_numpy(np.flatnonzero(keys <= np.partition(keys, k - 1)[k - 1]))


def scatter(values: Tensor, indices: Tensor, size: int) -> Tensor:
    """The vector with these values in these places and 0 elsewhere."""
    vector = values.new_zeros(size)
    vector[indices] = values
    return vector


def index_type(size: int) -> torch.dtype:
    """The smallest unsigned integer type that holds size − 1."""
    for bits, dtype in ((8, torch.uint8), (16, torch.uint16), (32, torch.uint32)):
        if size <= 2**bits:
            return dtype
    return torch.int64
