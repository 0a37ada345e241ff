"""What a client can do, and the counting of what it costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcanon.objectives import Objective
from fedcanon.penalties import Penalty


@dataclass
class CountedProx:
    """prox_{step·h}, counting its calls."""

    penalty: Penalty
    calls: int = 0

    def __call__(self, x: Tensor, step: float, *, counted: bool = True) -> Tensor:
        """prox_{step·h}(x) as a new vector; a step of 0 is the identity and is not counted."""
        self.calls += counted and step > 0
        return self.penalty.prox(x, step)


class Batches:
    """Mini-batches without replacement: a random order of the samples, drawn anew for each pass."""

    def __init__(self, samples: int, size: int | None, rng: np.random.Generator) -> None:
        self._samples, self._rng = samples, rng
        self._size = samples if size is None else min(size, samples)
        self._order = torch.empty(0, dtype=torch.int64)
        self._position = 0

    def next(self) -> Tensor | None:
        """Indices of the next mini-batch; None stands for all samples."""
        if self._size == self._samples:
            return None
        if self._position + self._size > len(self._order):
            self._order = torch.from_numpy(self._rng.permutation(self._samples))
            self._position = 0
        batch = self._order.narrow(0, self._position, self._size)
        self._position += self._size
        return batch


class ClientWork:
    """One client's means in one round; see ``algorithms.base.Work``."""

    def __init__(self, objective: Objective, prox: CountedProx, batches: Batches) -> None:
        self._objective, self._batches = objective, batches
        self.prox = prox

    def full_gradient(self, x: Tensor) -> Tensor:
        """∇f_i(x), exact."""
        return self._objective.full_gradient(x)

    def descend(
        self, start: Tensor, step: float, steps: int, *, shift: Tensor | None = None
    ) -> Tensor:
        """``steps`` times x ← x − step·(g_i(x) + shift) from ``start``, on fresh mini-batches."""
        x = self._objective.workspace(start)
        for _ in range(steps):
            gradient = self._objective.gradient(x, self._batches.next())
            if shift is not None:
                gradient += shift
            x.add_(gradient, alpha=-step)
        return x.clone()

    def encode(self, u: Tensor) -> Tensor:
        """What the server will see of ``u``: all of it."""
        return u
