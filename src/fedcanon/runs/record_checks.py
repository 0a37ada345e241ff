"""Whether records can be kept private in a run, and what its selection is then worth."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor

from fedcanon.algorithms import Algorithm
from fedcanon.compression import Identity
from fedcanon.engines.private_work import refuse_exact
from fedcanon.engines.work import CountedProx, IdleWork
from fedcanon.errors import FedcanonError
from fedcanon.objectives import ModuleClients, Problem
from fedcanon.penalties import Penalty, PerLayer, Ridge, Sum, Zero
from fedcanon.privacy import RecordPrivacy
from fedcanon.randomness import Purpose, generator


def check_records(problem: Problem, algorithm: Algorithm, records: RecordPrivacy) -> None:
    """Raise a ``FedcanonError`` if records cannot be kept private as these settings promise.

    The gradients of single records must be known, and a round of the method must make as many noisy
    gradients as the accountant counts, and nothing else, from the records.

    Args:
        problem: The clients.
        algorithm: The federated method.
        records: How records are kept private.
    """
    # Clients that share one network are alike.
    shared = isinstance(problem.clients, ModuleClients)
    for client in problem.clients[:1] if shared else problem.clients:
        client.require_records()
    name, steps = type(algorithm).__name__, _gradient_steps(algorithm)
    if steps != records.steps:
        raise FedcanonError(
            f"a round of {name} has {steps} gradient steps, but the privacy of records is "
            f"accounted for {records.steps}: set the steps of RecordPrivacy to {steps}."
        )


def _gradient_steps(algorithm: Algorithm) -> int:
    """Return how many gradient steps a client takes in a round, from a round without data.

    Raises:
        FedcanonError: The method needs exact sums over records, or draws what it sends at random.
    """
    z, rng = torch.zeros(1), generator(0, Purpose.COINS)
    before, work = rng.bit_generator.state, _CountingWork(Identity())
    server = algorithm.server_init(z, CountedProx(Zero()))
    sent = algorithm.broadcast(server, 0, rng)
    # Only a broadcast can draw at random. Whether it draws the number of steps cannot be seen.
    if rng.bit_generator.state != before:
        raise FedcanonError(
            f"{type(algorithm).__name__} draws at random what its rounds do, so that the number of "
            "their gradient steps may vary and cannot be accounted for: use FedCanon+ "
            '(algorithm.name = "fedcanon+").'
        )
    algorithm.local(algorithm.client_init(z), sent, work)
    return work.steps


@dataclass
class _CountingWork(IdleWork):
    """Work of a client without data, which counts gradient steps and refuses exact sums."""

    steps: int = 0

    def gradient(self, x: Tensor) -> Tensor:
        self.steps += 1
        return super().gradient(x)

    def descend(self, start: Tensor, step: float, steps: int, **how: Any) -> Tensor:
        self.steps += steps
        return super().descend(start, step, steps, **how)

    def solve(self, centre: Tensor, eta: float, start: Tensor, **how: Any) -> Tensor:
        if how["tolerance"]:
            refuse_exact("solutions to a tolerance")
        self.steps += how["steps"]
        return super().solve(centre, eta, start, **how)

    def full_gradient(self, x: Tensor) -> NoReturn:
        refuse_exact("full gradients")

    def expansion(self, x: Tensor) -> NoReturn:
        refuse_exact("values and second derivatives")


def selection_is_noise(
    problem: Problem, penalty: Penalty, records: RecordPrivacy, rounds: int
) -> str | None:
    """Return a warning if noise rather than data will decide which weights are zero.

    The noise of the mean gradient has the deviation σ = √(Σ_i p_i² (sC/(q n_i))² / K) in a round.
    Averaged over the last half of T rounds it is σ/√(T/2). Experiments have shown that zeros are
    right as long as that is at most κ/4.

    Args:
        problem: The clients.
        penalty: The regulariser, whose smallest κ counts; without one there is no selection.
        records: How records are kept private.
        rounds: T.
    """
    smallest = min(_strengths(penalty), default=None)
    if smallest is None:
        return None
    scale = records.noise * records.clip / (records.sampling * problem.total_weight)
    clients = zip(problem.weights, problem.clients, strict=True)
    noise = scale * math.hypot(*(weight / client.samples for weight, client in clients))
    averaged = noise / math.sqrt(records.steps * rounds / 2)
    if averaged <= smallest / 4:
        return None
    return (
        f"the selection is noise: after {rounds:,} rounds the noise of the gradient is "
        f"{averaged:.2g}, which is more than a quarter of κ = {smallest:g}, so that chance decides "
        "which weights are zero. Use more records, fewer clients, a larger epsilon, a smaller clip "
        f"or a κ of at least {4 * averaged:.2g}."
    )


def _strengths(penalty: Penalty) -> Iterator[float]:
    """The κ of every penalty that makes zeros."""
    if isinstance(penalty, PerLayer):
        terms = [term for _, term in penalty.placed]
    elif isinstance(penalty, Sum):
        terms = list(penalty.terms)
    else:
        kappa = 0.0 if isinstance(penalty, Ridge) else getattr(penalty, "kappa", 0.0)
        if kappa:
            yield kappa
        return
    for term in terms:
        yield from _strengths(term)
