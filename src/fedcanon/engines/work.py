"""What a client can do, and the counting of what it costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcanon.compression import Compressor, Encoded
from fedcanon.engines.base import Rules
from fedcanon.errors import DivergenceError, FedcanonError
from fedcanon.expansion import expansion_length, pack_expansion
from fedcanon.objectives import Objective
from fedcanon.penalties import Penalty
from fedcanon.randomness import Purpose, generator


class _NoDraws:
    """Stands for a generator where nothing may be drawn."""

    def __getattr__(self, name: str) -> Any:
        raise FedcanonError(
            "a compressor that says that it draws nothing has used its generator: let its property "
            "draws be True."
        )


NO_DRAWS = cast(np.random.Generator, _NoDraws())

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

    def __init__(
        self, samples: int, size: int | None, make_rng: Callable[[], np.random.Generator]
    ) -> None:
        """Begin with the first pass; ``make_rng`` is called if there is anything to draw."""
        self._samples, self._make_rng = samples, make_rng
        self._size = samples if size is None else min(size, samples)
        self._order = np.empty(0, dtype=np.int64)
        self._position = 0

    @cached_property
    def _rng(self) -> np.random.Generator:
        return self._make_rng()

    def next(self) -> Tensor | None:
        """Indices of the next mini-batch; None stands for all samples."""
        if self._size == self._samples:
            return None
        return torch.from_numpy(self._next(1)[0])

    def several(self, steps: int) -> Sequence[Tensor | None]:
        """Indices of the next mini-batches; None stands for all samples."""
        if self._size == self._samples:
            return [None] * steps
        return torch.from_numpy(self.take(steps)).unbind()

    def take(self, steps: int) -> NDArray[np.int64]:
        """Indices of the next mini-batches, a row for each."""
        if self._size == self._samples:
            return np.broadcast_to(np.arange(self._samples), (steps, self._samples))
        taken, missing = list[NDArray[np.int64]](), steps
        while missing:
            taken.append(self._next(missing))
            missing -= len(taken[-1])
        return np.concatenate(taken)

    def _next(self, most: int) -> NDArray[np.int64]:
        """Mini-batches of one pass as rows, at least one and at most so many."""
        if self._position + self._size > len(self._order):
            self._order = self._rng.permutation(self._samples)
            self._position = 0
        count = min(most, (len(self._order) - self._position) // self._size)
        end = self._position + count * self._size
        rows = self._order[self._position : end].reshape(count, self._size)
        self._position = end
        return rows


def pulled(x: Tensor, pull: tuple[Tensor, float] | None) -> Tensor | None:
    """s·(x − centre); None without a pull."""
    return None if pull is None else (x - pull[0]).mul_(pull[1])


def move_(x: Tensor, step: float, direction: Tensor | None) -> None:
    """x ← x − step·direction, if there is one."""
    if direction is not None:
        x.add_(direction, alpha=-step)


class ClientWork:
    """One client's means in one round; see ``algorithms.base.Work``."""

    def __init__(
        self,
        rules: Rules,
        objective: Objective,
        prox: CountedProx,
        t: int,
        client: int,
        secret: int | None = None,
    ) -> None:
        """Begin the work of client ``client`` in round ``t``.

        Batches are drawn from the run's seed. What alters an upload is drawn from the client's own
        ``secret`` where it has one, which no server knows.
        """
        self._objective, self._compressor, self.prox = objective, rules.compressor, prox
        order = partial(generator, rules.seed, Purpose.BATCHES, t, client)
        self.batches = Batches(objective.samples, rules.batch_size, order)
        self._draw = rules.seed if secret is None else secret, Purpose.ENCODING, t, client

    def gradient(self, x: Tensor) -> Tensor:
        """g_i(x) on a fresh mini-batch; valid until the next call."""
        return self._objective.gradient(x, self.batches.next())

    def full_gradient(self, x: Tensor) -> Tensor:
        """∇f_i(x), exact."""
        return self._objective.full_gradient(x)

    def expansion(self, x: Tensor) -> Tensor:
        """f_i(x), ∇f_i(x) and the upper triangle of ∇²f_i(x), exact."""
        value, gradient = self._objective.value_and_gradient(x)
        return pack_expansion(value, gradient, self._objective.hessian(x))

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
        x, batches = self._objective.workspace(start), self.batches.several(steps)
        at_once = 1 if prox or pull is not None else steps
        for first in range(0, steps, at_once):
            back = pulled(x, pull)
            self._descend_(x, batches[first : first + at_once], step, shift)
            move_(x, step, back)
            if prox:
                self.prox.apply_(x, prox)
        return self._objective.taken_out(x)

    def _descend_(
        self, x: Tensor, batches: Sequence[Tensor | None], step: float, shift: Tensor | None
    ) -> None:
        """x ← x − step·(g_i(x) + shift), in place, for one mini-batch after the other."""
        self._objective.descend_(x, batches, step, shift)

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
                raise DivergenceError(
                    f"a local subproblem diverged at gradient steps of {step:g}: use a beta near "
                    "1/(L + 1/η)."
                )
            x = x - step * gradient
        raise FedcanonError(
            f"a local subproblem was not solved to the tolerance {tolerance:g} in {MOST_STEPS:,} "
            f"gradient steps of {step:g}: use a beta near 1/(L + 1/η), or a larger tolerance."
        )

    def encode(self, u: Tensor) -> Encoded:
        """``u`` as it travels."""
        return self._compressor(u, self._encoding)

    @cached_property
    def _encoding(self) -> np.random.Generator:
        # To seed a generator takes as long as some local steps of a small model.
        return generator(*self._draw) if self._compressor.draws else NO_DRAWS


@dataclass
class IdleWork:
    """Work of a client without data, which never moves: it shows what an upload looks like."""

    compressor: Compressor

    def gradient(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    full_gradient = gradient

    def expansion(self, x: Tensor) -> Tensor:
        return x.new_zeros(expansion_length(len(x)))

    def descend(self, start: Tensor, step: float, steps: int, **how: Any) -> Tensor:
        return start.clone()

    def solve(self, centre: Tensor, eta: float, start: Tensor, **how: Any) -> Tensor:
        return start.clone()

    def prox(self, x: Tensor, step: float) -> Tensor:
        return x.clone()

    def encode(self, u: Tensor) -> Encoded:
        return self.compressor(u, np.random.default_rng(0))
