"""A step size for networks, from short trials on the clients' own data.

Some clients make 40 local steps from the start with each of up to 17 step sizes. Only their losses
afterwards are looked at, so that real clients can do the same and send 17 numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from fedcanon.objectives.base import Objective
from fedcanon.randomness import module_draws

TRIED = tuple(math.sqrt(2.0**exponent) for exponent in range(-14, 3))
"""The step sizes that are tried, from 1/128 to 2, each √2 times the one before."""

STEPS = 40
"""The gradient steps of a trial: enough to leave the plateau on which deep networks start."""


MIDDLE = TRIED.index(1 / 8)
"""The step that is tried first; from there, larger and smaller ones."""

MEASURED = 1024
"""On so many of a client's samples the loss after a trial is measured, if it has more."""

PATIENCE = 3
"""After so many steps in a row that are no better, none further in that direction is tried."""


def trial_losses(
    objective: Objective, start: Tensor, batch_size: int | None, rng: np.random.Generator
) -> list[float]:
    """Return f_i after 40 local steps from the start, for each step size of ``TRIED``.

    Every trial sees the same mini-batches, and is measured on the same samples, up to 1,024. A loss
    that is not below twice the one at the start counts as that much, so that no client outvotes the
    others. Steps that are far too large or too small are not tried: they count as twice the loss at
    the start, and as that loss.

    Args:
        objective: The client's loss f_i.
        start: Where to start.
        batch_size: Samples in a mini-batch; None is all of the client's samples.
        rng: Draws the mini-batches, and what the network draws itself (dropout).
    """
    seed = int(rng.integers(2**32))
    batches = list(_batches(objective.samples, batch_size or objective.samples, rng))
    measured = objective.over_some(MEASURED, np.random.default_rng(seed))
    buffers, first = objective.buffers.clone(), measured.value(start)
    ceiling = 2 * first
    losses = [first] * MIDDLE + [ceiling] * (len(TRIED) - MIDDLE)
    best = ceiling

    def loss_after(step: float) -> float:
        with module_draws(seed, 0, 0):
            x = objective.workspace(start)
            objective.descend_(x, batches, step)
        loss = measured.value(objective.taken_out(x))
        objective.buffers.copy_(buffers)
        return loss if loss < ceiling else ceiling  # the latter also if it is no number

    larger, smaller = range(MIDDLE, len(TRIED)), range(MIDDLE - 1, -1, -1)
    for positions in (larger, smaller):
        worse = 0
        for position in positions:
            losses[position] = loss = loss_after(TRIED[position])
            worse = 0 if loss < best or best == ceiling else worse + 1
            best = min(best, loss)
            if worse == PATIENCE or (loss == ceiling and positions is larger):
                break
    return losses


def best_step(losses: Sequence[Sequence[float]], weights: Sequence[float]) -> float:
    """Return the step of ``TRIED`` before the one at which the clients' mean loss is smallest.

    The smallest loss is often close to the edge beyond which training diverges, hence the step
    before. A client with samples of one class is content with almost any step: in the mean such
    clients have no say, whereas the best steps of single clients would be far too large.

    Args:
        losses: What ``trial_losses`` returned, for each client.
        weights: The clients' weights.
    """
    best = int(np.average(np.asarray(losses), axis=0, weights=weights).argmin())
    return TRIED[max(best - 1, 0)]


def _batches(samples: int, size: int, rng: np.random.Generator) -> Iterator[Tensor | None]:
    """Mini-batches without replacement, one for each step of a trial; None is all samples."""
    order = np.empty(0, dtype=np.int64)
    for _ in range(STEPS):
        if size >= samples:
            yield None
            continue
        if len(order) < size:
            order = rng.permutation(samples)
        yield torch.from_numpy(order[:size])
        order = order[size:]
