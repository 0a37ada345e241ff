"""Five unlike quadratics with ℓ1, on which it shows where a method stops."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcanon import PGD, Algorithm, Federation, Problem, Quadratic
from fedcanon.algorithms import Facts
from fedcanon.compression import Compressor, Identity
from fedcanon.penalties import L1, Penalty, Zero

H = L1(0.3)


def quadratics(clients: int = 5, d: int = 10) -> Problem:
    """f_i = ½(x − b_i)ᵀA_i(x − b_i), eigenvalues from 0.1 to 1, b_i far apart."""
    rng = np.random.default_rng(0)
    losses = []
    for _ in range(clients):
        Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
        A = Q @ np.diag(np.linspace(0.1, 1, d)) @ Q.T
        b = 3 * rng.standard_normal(d)
        losses.append(Quadratic(torch.from_numpy((A + A.T) / 2), torch.from_numpy(b)))
    return Problem(losses, torch.from_numpy(rng.standard_normal(d)))


def federation(
    algorithm: Algorithm,
    participants: int | None = None,
    compressor: Compressor | None = None,
    penalty: Penalty | None = None,
    clients: int = 5,
) -> Federation:
    """The quadratics with ℓ1 for a method that minimises f + h, without it for others."""
    given = penalty or solved_with(algorithm)
    options = {"participants": participants, "compressor": compressor or Identity()}
    return Federation(quadratics(clients), algorithm, given, **options)


def solved_with(algorithm: Algorithm) -> Penalty:
    """The penalty with which a method minimises f + h: none if it ignores penalties."""
    return H if algorithm.solves == "f + h" else Zero()


def end(algorithm: Algorithm, rounds: int = 1000, **options: Any) -> Tensor:
    """The model after so many rounds."""
    run = federation(algorithm, **options)
    for _ in range(rounds):
        run.step()
    return run.model


@cache
def minimiser(penalty: Penalty, clients: int = 5) -> Tensor:
    """The minimiser of f + h: PGD comes to rounding in some hundred rounds."""
    return end(PGD(1.0), rounds=300, penalty=penalty, clients=clients)


def distance(algorithm: Algorithm, model: Tensor) -> float:
    """How far a model is from the minimiser of what a method solves."""
    return float((model - minimiser(solved_with(algorithm))).norm())


def rounds_to(tolerance: float, algorithm: Algorithm, participants: int | None = None) -> int:
    """How many rounds it takes to come so near."""
    run = federation(algorithm, participants)
    while distance(algorithm, run.model) > tolerance:
        run.step()
    return run.rounds_done


def with_automatic_steps(
    kind: type[Algorithm], compressed: bool = False, **given: Any
) -> Algorithm:
    """The method with the steps that a configuration would choose for L = 1."""
    algorithm, facts = kind(**given), Facts(1.0, compressed=compressed)
    for _ in range(3):  # some of them depend on others
        steps = algorithm.theory(facts).automatic
        known = {key: value for key, value in steps.items() if hasattr(algorithm, key)}
        algorithm = replace(algorithm, **{**known, **given})
    return algorithm
