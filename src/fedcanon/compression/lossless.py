"""A vector by its entries other than 0, where that is shorter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcanon.compression.base import Compressor
from fedcanon.compression.sparse import index_type, scatter


@dataclass(frozen=True)
class Lossless(Compressor):
    """C(u) = u, δ = 1, bit for bit: for models with many exact zeros.

    What travels, whichever takes the fewest bytes: all d values; the values other than 0 and d bits
    that say where they are; or these values and their indices. −0 counts as other than 0.
    """

    @property
    def draws(self) -> bool:
        return False

    def encode(self, u: Tensor, rng: np.random.Generator | None = None) -> dict[str, Tensor]:
        there = (u != 0) | u.signbit()
        kept, size, width = int(there.sum()), u.numel(), u.element_size()
        indices = index_type(size)
        with_bits = kept * width + (size + 7) // 8
        with_indices = kept * (width + indices.itemsize)
        if size * width <= min(with_bits, with_indices):
            return {"values": u}
        if with_bits < with_indices:
            return {"values": u[there], "bits": torch.from_numpy(np.packbits(there.cpu().numpy()))}
        return {"values": u[there], "indices": there.nonzero().view(-1).to(indices)}

    def decode(self, parts: dict[str, Tensor], size: int) -> Tensor:
        values = parts["values"]
        if "indices" in parts:
            return scatter(values, parts["indices"].to(torch.int64), size)
        if "bits" in parts:
            there = np.unpackbits(parts["bits"].numpy(), count=size).astype(bool)
            return scatter(values, torch.from_numpy(np.flatnonzero(there)), size)
        return values

    def contraction(self, size: int) -> float:
        return 1.0
