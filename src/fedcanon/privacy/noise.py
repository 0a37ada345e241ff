"""Noise for privacy, drawn from the operating system's entropy and never from the seed of a run.

A seed is known to others, and who knows the noise can subtract it.
"""

from __future__ import annotations

import math
import secrets

import numpy as np
import scipy  # imports its own packages when they are used
import torch
from numpy.typing import NDArray
from torch import Tensor

_SUMMANDS = 4
"""So many Gaussians are added up for each number.

The lowest bits of a single one would tell by which floating-point number it was produced, and so
something of the number that it hides.
"""


def gaussian(like: Tensor, deviation: float) -> Tensor:
    """Return independent Gaussian numbers with mean 0, in the shape and precision of ``like``.

    Args:
        like: The tensor to which the noise will be added.
        deviation: The standard deviation of every number.
    """
    if not deviation:
        return torch.zeros_like(like)
    total = sum(scipy.special.ndtri(_uniform(like.numel())) for _ in range(_SUMMANDS))
    noise = torch.from_numpy(total * (deviation / math.sqrt(_SUMMANDS)))
    return noise.to(like.device, like.dtype).view(like.shape)


def discrete_gaussian(size: int, deviation: float) -> NDArray[np.int64]:
    """Return independent whole numbers k with probabilities in proportion to exp(−k²/(2σ²)).

    Discrete Laplace numbers of scale t = ⌊σ⌋ + 1 are accepted with probability
    exp(−(|k| − σ²/t)²/(2σ²)) (Canonne, Kamath and Steinke, 2020).

    Args:
        size: How many numbers.
        deviation: σ, at least 0.
    """
    if not deviation:
        return np.zeros(size, dtype=np.int64)
    scale, found = math.floor(deviation) + 1, np.empty(0, dtype=np.int64)
    while len(found) < size:
        count = 2 * (size - len(found)) + 16
        k = np.floor(-scale * np.log(_uniform(count))).astype(np.int64)
        negative = _uniform(count) < 0.5
        distance = k - deviation**2 / scale
        accepted = _uniform(count) < np.exp(-(distance**2) / (2 * deviation**2))
        accepted &= ~(negative & (k == 0))  # 0 must not count twice
        found = np.concatenate([found, np.where(negative, -k, k)[accepted]])
    return found[:size]


def bernoulli(size: int, probability: float) -> NDArray[np.bool_]:
    """Return independent draws that are true with this probability."""
    return _uniform(size) < probability


def _uniform(size: int) -> NDArray[np.float64]:
    """Return independent numbers in (0, 1), on a grid of 2⁵² points between them."""
    words = np.frombuffer(secrets.token_bytes(8 * size), dtype=np.uint64)
    return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
