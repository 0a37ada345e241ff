"""What a client can do, and the counting of what it costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcanon.compression import Compressor, Encoded
from fedcanon.engines.randomness import Purpose
from fedcanon.errors import FedcanonError
from fedcanon.objectives import Objective
from fedcanon.penalties import Penalty

MOST_STEPS = 100_000
"""Gradient steps after which a subproblem that is to be solved to a tolerance is given up."""


@dataclass
class CountedProx:
    """prox_{step·h}, counting its calls."""

    penalty: Penalty
    calls: int = 0

    def __call__(self, x: Tensor, step: float, *, counted: bool = True) -> Tensor:
        """prox_{step·h}(x) as a new vector; a step of 0 is the identity and is not counted."""
        self.calls += counted and step > 0
        return self.penalty.prox(x, step)

    def apply_(self, x: Tensor, step: float) -> None:
        """The same in place."""
        self.calls += step > 0
        self.penalty.prox_(x, step)


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

    def __init__(
        self,
        objective: Objective,
        prox: CountedProx,
        batch_size: int | None,
        compressor: Compressor,
        draws: Callable[[Purpose], np.random.Generator],
    ) -> None:
        self._objective, self._compressor, self._draws = objective, compressor, draws
        self._batches = Batches(objective.samples, batch_size, draws(Purpose.BATCHES))
        self.prox = prox

    def gradient(self, x: Tensor) -> Tensor:
        """g_i(x) on a fresh mini-batch; valid until the next call."""
        return self._objective.gradient(x, self._batches.next())

    def full_gradient(self, x: Tensor) -> Tensor:
        """∇f_i(x), exact."""
        return self._objective.full_gradient(x)

    def descend(
        self,
        start: Tensor,
        step: float,
        steps: int,
        *,
        shift: Tensor | None = None,
        pull: tuple[Tensor, float] | None = None,
        prox: float = 0.0,
    ) -> Tensor:
        """``steps`` times x ← prox_{prox·h}(x − step·(g_i(x) + shift + s·(x − centre)))."""
        x = self._objective.workspace(start)
        for _ in range(steps):
            gradient = self.gradient(x)
            if shift is not None:
                gradient += shift
            if pull is not None:
                centre, strength = pull
                gradient.add_(x, alpha=strength).add_(centre, alpha=-strength)
            x.add_(gradient, alpha=-step)
            if prox:
                self.prox.apply_(x, prox)
        return x.clone()

    def solve(
        self,
        centre: Tensor,
        eta: float,
        start: Tensor,
        *,
        step: float,
        steps: int,
        tolerance: float,
    ) -> Tensor:
        """prox_{eta·f_i}(centre) by so many steps, or to a tolerance by exact gradient steps."""
        if not tolerance:
            return self.descend(start, step, steps, pull=(centre, 1 / eta))
        x = start
        for _ in range(MOST_STEPS):
            gradient = self._objective.full_gradient(x) + (x - centre) / eta
            norm = float(gradient.norm())
            if norm <= tolerance:
                return x
            if not math.isfinite(norm):
                break
            x = x - step * gradient
        raise FedcanonError(
            f"a local subproblem was not solved to the tolerance {tolerance:g} in {MOST_STEPS:,} "
            f"gradient steps of {step:g}: use a beta near 1/(L + 1/η), or a larger tolerance."
        )

    def encode(self, u: Tensor) -> Encoded:
        """``u`` as it travels."""
        return self._compressor(u, self._draws(Purpose.ENCODING))
