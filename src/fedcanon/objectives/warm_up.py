"""A step size for networks, from short trials on the clients' own data.

Some clients make 40 local steps from the start with each of 17 step sizes. Only their losses
afterwards are looked at, so that real clients can do the same and send 17 numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from fedcanon.errors import FedcanonError
from fedcanon.objectives.base import Objective
from fedcanon.randomness import module_draws

TRIED = tuple(math.sqrt(2.0**exponent) for exponent in range(-14, 3))
"""The step sizes that are tried, from 1/128 to 2, each √2 times the one before."""

STEPS = 40
"""The gradient steps of a trial: enough to leave the plateau on which deep networks start."""


def trial_losses(
    objective: Objective, start: Tensor, batch_size: int | None, rng: np.random.Generator
) -> list[float]:
    """Return f_i after 40 local steps from the start, with each step size of ``TRIED``.

    Every trial sees the same mini-batches. A loss that is not below twice the one at the start
    counts as that much, so that no client outvotes the others.

    Args:
        objective: The client's loss f_i.
        start: Where to start.
        batch_size: Samples in a mini-batch; None is all of the client's samples.
        rng: Draws the mini-batches, and what the network draws itself (dropout).
    """
    seed = int(rng.integers(2**32))
    batches = list(_batches(objective.samples, batch_size or objective.samples, rng))
    buffers = objective.buffers.clone()
    losses, ceiling = list[float](), 2 * objective.value(start)
    for step in TRIED:
        if losses and losses[-1] == ceiling:  # larger steps are no better
            losses.append(ceiling)
            continue
        with module_draws(seed, 0, 0):
            x = objective.workspace(start)
            for batch in batches:
                objective.descend_(x, batch, step)
        loss = objective.value(objective.taken_out(x))
        losses.append(loss if loss < ceiling else ceiling)  # the latter also if it is no number
        objective.buffers.copy_(buffers)
    return losses


def best_step(losses: Sequence[Sequence[float]], weights: Sequence[float]) -> float:
    """Return the step of ``TRIED`` before the one at which the clients' mean loss is smallest.

    The smallest loss is often close to the edge beyond which training diverges, hence the step
    before. A client with samples of one class is content with almost any step: in the mean such
    clients have no say, whereas the best steps of single clients would be far too large.

    Args:
        losses: What ``trial_losses`` returned, for each client.
        weights: The clients' weights.

    Raises:
        FedcanonError: The smallest step is already too large.
    """
    best = int(np.average(np.asarray(losses), axis=0, weights=weights).argmin())
    if best == 0:
        raise FedcanonError(
            f"local steps of {TRIED[0]:g} are too large for this network: scale the inputs to "
            "about 1, or set the step sizes."
        )
    return TRIED[best - 1]


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
