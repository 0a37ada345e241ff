"""Checks on replies of clients, which are not trusted, and the mean of their measures."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from enum import StrEnum

import torch
from torch import Tensor

from fedcanon.algorithms import State
from fedcanon.compression import decoded
from fedcanon.engines.traffic import vectors


class Fault(StrEnum):
    """What is wrong with an answer: names or shapes, an entry that is not finite, or its norm."""

    MALFORMED = "malformed"
    NOT_FINITE = "not finite"
    TOO_LARGE = "too large"


_TEST = "test/"
"""The prefix of measures on the samples that a client holds out."""

_ACCURACY = f"{_TEST}accuracy"


def fault(content: State, expected: State) -> Fault | None:
    """Return what is wrong with an answer, or None.

    Names, shapes and types must be those of ``expected``, and all numbers must be finite.
    """
    if _shapes(content) != _shapes(expected):
        return Fault.MALFORMED
    found = decoded(content)
    numbers = [entry for entry in found.values() if not isinstance(entry, Tensor)]
    finite = all(bool(vector.isfinite().all()) for vector in vectors(found))
    return None if finite and all(map(_is_finite, numbers)) else Fault.NOT_FINITE


def measures_fault(answer: State, z: Tensor | None) -> Fault | None:
    """Return what is wrong with a client's measures of a model, or None.

    ``z`` is the model if its gradient was asked for, and None otherwise.
    """
    numbers = [value for name, value in answer.items() if name != "gradient"]
    if not ({"loss", "held_out"} <= answer.keys() and all(map(_is_number, numbers))):
        return Fault.MALFORMED
    if not all(map(_is_finite, numbers)):
        return Fault.NOT_FINITE
    if z is None:
        return None
    gradient = answer.get("gradient")
    return Fault.MALFORMED if gradient is None else fault({"gradient": gradient}, {"gradient": z})


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _is_finite(value: float) -> bool:
    return abs(value) <= sys.float_info.max  # math.isfinite fails for integers beyond this


def pooled_measures(found: Mapping[int, State]) -> dict[str, float]:
    """Average the clients' measures over all held-out samples.

    The result also names the client with the worst accuracy, and that accuracy.
    """
    tested = {client: answer for client, answer in found.items() if answer["held_out"] > 0}
    mean: dict[str, float] = {}
    for name in sorted({k for answer in tested.values() for k in answer if k.startswith(_TEST)}):
        answers = [answer for answer in tested.values() if name in answer]
        total = sum(answer["held_out"] for answer in answers)
        mean[name.removeprefix(_TEST)] = sum(a["held_out"] / total * a[name] for a in answers)
    accuracies = {c: a[_ACCURACY] for c, a in tested.items() if _ACCURACY in a}
    if not accuracies:
        return mean
    worst = min(accuracies, key=lambda client: accuracies[client])
    return {**mean, "worst_accuracy": accuracies[worst], "worst_client": float(worst)}


def exceeds(upload: State, bound: float) -> bool:
    """Tell whether a vector of an upload has a norm above ``bound``."""
    norms = (float(torch.linalg.vector_norm(v, dtype=torch.float64)) for v in vectors(upload))
    return bound < math.inf and any(norm > bound for norm in norms)


def _shapes(content: State) -> dict[str, object]:
    """Return the shape and type of every vector, and for other entries whether it is a number."""
    return {
        name: (tuple(entry.shape), entry.dtype) if isinstance(entry, Tensor) else _is_number(entry)
        for name, entry in decoded(content).items()
    }


def printable(text: str) -> str:
    """Return the text with a "?" for every character that could act on a terminal or a log."""
    return "".join(c if c.isprintable() else "?" for c in text)
