"""A step size for networks, from short trials on the clients' own data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from fedcanon.errors import FedcanonError
from fedcanon.objectives.base import Objective
from fedcanon.objectives.problem import Problem
from fedcanon.randomness import module_draws

TRIED = tuple(2.0**exponent for exponent in range(-8, 2))
"""The step sizes that are tried: 1/256, 1/128, …, 1, 2."""

STEPS = 40
"""The gradient steps of a trial: enough to leave the plateau on which deep networks start."""

MARGIN = 0.7
"""The part of the best step of the trials to use: the best one is sometimes at the edge."""


def trial_losses(
    objective: Objective, start: Tensor, batch_size: int | None, rng: np.random.Generator
) -> list[float]:
    """Return f_i at the start, and after 40 local steps from there with each step of ``TRIED``.

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
    losses = [objective.value(start)]
    for step in TRIED:
        with module_draws(seed, 0, 0):
            x = objective.workspace(start)
            for batch in batches:
                objective.descend_(x, batch, step)
        loss = objective.value(objective.taken_out(x))
        losses.append(loss if loss < 2 * losses[0] else 2 * losses[0])  # also if it is no number
        objective.buffers.copy_(buffers)
    return losses


def best_step(losses: Sequence[Sequence[float]], weights: Sequence[float]) -> float:
    """Return 0.7 times the step of ``TRIED`` at which the mean of the clients' losses is smallest.

    A client with samples of one class is content with almost any step. In the mean such clients
    have no say; the best steps of single clients would be far too large.

    Args:
        losses: What ``trial_losses`` returned, for each client.
        weights: The clients' weights.

    Raises:
        FedcanonError: No step lowers the mean loss.
    """
    best = int(np.average(np.asarray(losses), axis=0, weights=weights).argmin())
    if best == 0:
        raise FedcanonError(
            f"even local steps of {TRIED[0]:g} do not lower the loss: scale the inputs to about 1, "
            "or set the step sizes."
        )
    return MARGIN * TRIED[best - 1]


def warm_up(
    problem: Problem, batch_size: int | None, rng: np.random.Generator, clients: int = 10
) -> float:
    """A local step size β for methods with mini-batches on a network, by short trials.

    Some clients make 40 local steps from the start with each of ten step sizes. Only their losses
    afterwards are looked at, so that real clients can do the same and send eleven numbers.

    Args:
        problem: The problem.
        batch_size: Samples in a mini-batch of a local step; None is all samples of a client.
        rng: Draws the clients and their mini-batches.
        clients: How many clients to ask; all if there are no more.

    Raises:
        FedcanonError: No step lowers the loss.

    Examples:
        Of the steps ½ and 1, which both reach the minimum of f in time, the smaller one counts.

        >>> from fedcanon.objectives import Quadratic
        >>> f = Quadratic(torch.ones(1), torch.ones(1))
        >>> warm_up(Problem([f], torch.zeros(1)), None, np.random.default_rng(0))
        0.35
    """
    count = len(problem.clients)
    chosen = rng.choice(count, size=min(clients, count), replace=False)
    losses = [trial_losses(problem.clients[i], problem.start, batch_size, rng) for i in chosen]
    return best_step(losses, [problem.weights[i] for i in chosen])


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
