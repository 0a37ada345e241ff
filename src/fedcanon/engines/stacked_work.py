"""Several clients that work together: every vector of theirs is a row of a matrix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedcanon.algorithms import State
from fedcanon.compression import Encoded
from fedcanon.engines.work import ClientWork, move_, pulled
from fedcanon.objectives.stacked import StackedModule

T = TypeVar("T")

HEIGHT = 4
"""Clients that work together are a subtree of at most this height, 16 of them."""


@dataclass(frozen=True)
class StackedEncoded(Encoded):
    """The rows of a matrix, each encoded by itself; ``vector`` is the matrix of the receiver."""

    rows: list[Encoded] = field(default_factory=list)


class StackedWork:
    """What several clients can do in one round; see ``algorithms.base.Work``.

    Mini-batch gradients are computed together, whatever else is asked of each client by itself.
    """

    def __init__(self, objective: StackedModule, clients: Sequence[ClientWork]) -> None:
        self._objective, self._clients = objective, clients

    def gradient(self, x: Tensor) -> Tensor:
        """g_i(x_i) on fresh mini-batches."""
        samples, sizes = self._batches(1)
        return self._objective.gradient(x, samples[0], sizes)

    def _batches(self, steps: int) -> tuple[Tensor, Tensor]:
        """The samples of mini-batches at [step, client], and how many of them are each client's."""
        own = [client.batches.take(steps) for client in self._clients]
        sizes = [batch.shape[1] for batch in own]
        samples = np.zeros((steps, len(own), max(sizes)), dtype=np.int64)
        for k, batch in enumerate(own):
            samples[:, k, : sizes[k]] = batch
        device = self._objective.vector.device
        return torch.from_numpy(samples).to(device), torch.tensor(sizes, device=device)

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
        """Local steps of all clients, each from its row of ``start``."""
        x = self._objective.vector.copy_(start)
        samples, sizes = self._batches(steps)
        at_once = 1 if prox or pull is not None else steps
        for some in torch.split(samples, at_once):
            back = pulled(x, pull)
            self._objective.descend_(some, sizes, step, shift)
            move_(x, step, back)
            if prox:
                for client, row in zip(self._clients, x, strict=True):
                    client.prox.apply_(row, prox)
        return x.clone()

    def full_gradient(self, x: Tensor) -> Tensor:
        """∇f_i(x_i), exact."""
        return torch.stack(self._each(lambda client, row: client.full_gradient(row), x))

    def expansion(self, x: Tensor) -> Tensor:
        """f_i(x_i), ∇f_i(x_i) and the upper triangle of ∇²f_i(x_i), exact."""
        return torch.stack(self._each(lambda client, row: client.expansion(row), x))

    def solve(
        self, centre: Tensor, eta: float, start: Tensor, *, tolerance: float, **how: Any
    ) -> Tensor:
        """prox_{eta·f_i}(centre_i) by so many steps, or to a tolerance by exact gradient steps."""
        if not tolerance:
            return self.descend(start, **how, pull=(centre, 1 / eta))

        def solve(client: ClientWork, centre: Tensor, start: Tensor) -> Tensor:
            return client.solve(centre, eta, start, tolerance=tolerance, **how)

        return torch.stack(self._each(solve, centre, start))

    def prox(self, x: Tensor, step: float) -> Tensor:
        """prox_{step·h} of every row, counted for every client."""
        return torch.stack(self._each(lambda client, row: client.prox(row, step), x))

    def encode(self, u: Tensor) -> StackedEncoded:
        """Every row as it travels."""
        rows = self._each(lambda client, row: client.encode(row), u)
        return StackedEncoded({}, torch.stack([row.vector for row in rows]), rows=rows)

    def _each(self, function: Callable[..., T], *matrices: Tensor) -> list[T]:
        """What each client makes of its rows; a vector is the same row for all."""
        rows = (as_rows(matrix, len(self._clients)) for matrix in matrices)
        return [function(client, *own) for client, *own in zip(self._clients, *rows, strict=True)]


def stack(states: Sequence[State], dtype: torch.dtype) -> State:
    """States of several clients as one: a row for each, numbers as a column of this precision."""
    return {name: _stacked([state[name] for state in states], dtype) for name in states[0]}


def _stacked(entries: Sequence[object], dtype: torch.dtype) -> object:
    if all(entry is entries[0] for entry in entries):
        return entries[0]  # the same for all, such as a vector of the broadcast
    if isinstance(entries[0], Tensor):
        return torch.stack([entry for entry in entries if isinstance(entry, Tensor)])
    return torch.tensor(entries, dtype=dtype)[:, None]


def as_rows(entry: object, count: int) -> Tensor:
    """The vectors that the receiver makes of an entry, one for each of so many clients."""
    vector = entry.vector if isinstance(entry, Encoded) else entry
    assert isinstance(vector, Tensor)
    return vector if vector.ndim == 2 else vector.expand(count, -1)


def unstack(stacked: State, count: int) -> list[State]:
    """One client's part of each entry; numbers are vectors of length 1."""
    return [{name: _row(entry, k) for name, entry in stacked.items()} for k in range(count)]


def _row(entry: object, k: int) -> object:
    if isinstance(entry, StackedEncoded):
        return entry.rows[k]
    return entry[k] if isinstance(entry, Tensor) and entry.ndim == 2 else entry


def with_numbers(state: State) -> State:
    """The state with numbers in place of vectors of length 1."""
    return {
        name: entry.item() if isinstance(entry, Tensor) and entry.numel() == 1 else entry
        for name, entry in state.items()
    }
