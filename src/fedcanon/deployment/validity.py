"""Whether a reply can be what an honest client sends."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcanon.algorithms import State
from fedcanon.compression import Clip, Compressor, Encoded
from fedcanon.engines.messages import decoded, vectors

NOT_FINITE = "not finite"
"""What is said of an answer with an entry that is infinite or no number."""

_TEST = "test/"
"""Marks measures on what a client has held out."""

_ACCURACY = f"{_TEST}accuracy"


@dataclass(frozen=True)
class Idle:
    """Work of a client without data, which never moves: it shows what an upload looks like."""

    compressor: Compressor

    def gradient(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    def full_gradient(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    def descend(self, start: Tensor, step: float, steps: int, **how: Any) -> Tensor:
        return start.clone()

    def solve(self, centre: Tensor, eta: float, start: Tensor, **how: Any) -> Tensor:
        return start.clone()

    def prox(self, x: Tensor, step: float) -> Tensor:
        return x.clone()

    def encode(self, u: Tensor) -> Encoded:
        return self.compressor(u, np.random.default_rng(0))


def fault(content: State, expected: State) -> str | None:
    """Why an answer cannot be taken, if it cannot: other entries, or numbers that are none."""
    if _shapes(content) != _shapes(expected):
        return "malformed"
    found = decoded(content)
    numbers = [entry for entry in found.values() if not isinstance(entry, Tensor)]
    finite = all(bool(vector.isfinite().all()) for vector in vectors(found))
    return None if finite and all(map(_is_finite, numbers)) else NOT_FINITE


def measures_fault(answer: State, z: Tensor | None) -> str | None:
    """Why measures cannot be taken; ``z`` is the model if its gradient was asked for."""
    numbers = [value for name, value in answer.items() if name != "gradient"]
    if not ({"loss", "held_out"} <= answer.keys() and all(map(_is_number, numbers))):
        return "malformed"
    if not all(map(_is_finite, numbers)):
        return NOT_FINITE
    if z is None:
        return None
    gradient = answer.get("gradient")
    return "malformed" if gradient is None else fault({"gradient": gradient}, {"gradient": z})


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _is_finite(value: float) -> bool:
    return abs(value) <= sys.float_info.max  # integers may have any number of digits


def aggregated(found: Mapping[int, State]) -> dict[str, float]:
    """Measures over all held-out samples, and those of the client that is worst off."""
    tested = {client: answer for client, answer in found.items() if answer["held_out"] > 0}
    mean: dict[str, float] = {}
    for name in sorted({k for answer in tested.values() for k in answer if k.startswith(_TEST)}):
        told = [answer for answer in tested.values() if name in answer]
        total = sum(answer["held_out"] for answer in told)
        mean[name.removeprefix(_TEST)] = sum(a["held_out"] / total * a[name] for a in told)
    accuracies = {c: a[_ACCURACY] for c, a in tested.items() if _ACCURACY in a}
    if not accuracies:
        return mean
    worst = min(accuracies, key=lambda client: accuracies[client])
    return {**mean, "worst_accuracy": accuracies[worst], "worst_client": float(worst)}


def exceeds(upload: State, compressor: Compressor) -> bool:
    """Whether a vector is longer than clients clip theirs to."""
    if not isinstance(compressor, Clip):
        return False
    norms = (float(torch.linalg.vector_norm(v, dtype=torch.float64)) for v in vectors(upload))
    return any(norm > compressor.limit for norm in norms)


def _shapes(content: State) -> dict[str, object]:
    """Shapes and precisions of the vectors, and whether what else there is are numbers."""
    return {
        name: (tuple(entry.shape), entry.dtype) if isinstance(entry, Tensor) else _is_number(entry)
        for name, entry in decoded(content).items()
    }
