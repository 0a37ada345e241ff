"""The values of κ along a path."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from fedcanon.errors import FedcanonError
from fedcanon.objectives import Problem
from fedcanon.penalties import PENALTIES, Penalty
from fedcanon.runs.config import Config, parse_value
from fedcanon.runs.measures import stationarity_step

COUNT, SPAN = 20, 1e-3
"""How many values an automatic path has, and the last of them as a part of the first."""

_LARGEST = 2.0**40
"""A penalty that leaves weights other than zero up to this κ is taken to do so for every κ."""


def parse_kappas(text: str) -> tuple[float, ...]:
    """Read ``first:last:count``: so many values whose logarithms are evenly spaced.

    Args:
        text: What was given as ``--kappas``, such as ``1e-1:1e-4:20``.

    Raises:
        FedcanonError: It is anything else.
    """
    parts = [parse_value(part) for part in text.split(":")]
    numbers = [part for part in parts if isinstance(part, int | float) and 0 < part < math.inf]
    if len(parts) != 3 or len(numbers) != 3 or not isinstance(parts[2], int) or parts[2] < 2:
        raise FedcanonError(
            f"--kappas takes first:last:count with two or more values above 0, such as "
            f"1e-1:1e-4:20, not '{text}'."
        )
    return _spaced(*parts)


def automatic_kappas(problem: Problem, penalty_at: Callable[[float], Penalty]) -> tuple[float, ...]:
    """From the smallest κ at which all penalised weights are zero down to a thousandth of it.

    Args:
        problem: What the path solves.
        penalty_at: The penalty on the weights of its model, for a κ.

    Raises:
        FedcanonError: The model is a network, or there is no such κ.
    """
    if is_deep(problem):
        raise FedcanonError(
            "a network cannot leave the point where all its weights are zero, so its path cannot "
            "begin there: give --kappas from small to large, such as 1e-4:1e-2:10."
        )
    largest = largest_kappa(problem, penalty_at)
    return _spaced(largest, SPAN * largest, COUNT)


def is_deep(problem: Problem) -> bool:
    """Whether there are several layers of weights, which have no gradient where all are zero."""
    return sum(len(slot.shape) > 1 for slot in problem.layout) > 1


def require_kappa(config: Config) -> None:
    """Refuse a configuration whose penalty has no κ of its own, or is a sum or one per layer."""
    name = config.penalty.get("name")
    entry = PENALTIES.get(str(name))
    if entry is not None and "kappa" not in inspect.signature(entry).parameters:
        known = [n for n, p in PENALTIES.items() if "kappa" in inspect.signature(p).parameters]
        raise FedcanonError(
            f"a path needs a penalty with one kappa, which '{name}' does not have: "
            f"use one of {', '.join(known)}."
        )
    if name is None or name == "sum":
        raise FedcanonError("a path needs one penalty with a kappa, not a sum or one per layer.")


def largest_kappa(problem: Problem, penalty_at: Callable[[float], Penalty]) -> float:
    """The smallest κ at which the null model is stationary.

    There 0 = prox_{ah}(0 − a∇f) for the penalised weights, which the penalty itself decides: for
    ℓ1 it means κ ≥ max |∇f|, for groups of weights the largest norm of a group's gradient.

    Args:
        problem: What the path solves.
        penalty_at: The penalty on the weights of its model, for a κ.

    Raises:
        FedcanonError: The penalty leaves weights other than zero for every κ, or ∇f is 0.
    """
    gradient = problem.value_and_gradient(null_model(problem, penalty_at(1.0)))[1].double()
    return kappa_at(gradient, penalty_at)


def kappa_at(gradient: Tensor, penalty_at: Callable[[float], Penalty]) -> float:
    """The smallest κ at which the null model is stationary, from ∇f there."""
    if not any(bool(part.any()) for part in penalty_at(1.0).penalised(gradient)):
        raise FedcanonError(
            "the gradient vanishes where all weights are zero: give kappa yourself."
        )

    def all_zero(kappa: float) -> bool:
        penalty = penalty_at(kappa)
        step = stationarity_step(penalty)
        zeros, count = penalty.zeros(penalty.prox_(-step * gradient, step))
        return zeros == count

    high = 1.0
    while not all_zero(high):
        high *= 2
        if high > _LARGEST:
            raise FedcanonError("no kappa makes all weights zero here: give kappa yourself.")
    while all_zero(high / 2):
        high /= 2
    low = high / 2
    for _ in range(30):  # down to the rounding errors of single precision
        middle = (low * high) ** 0.5
        low, high = (low, middle) if all_zero(middle) else (middle, high)
    return high


def null_model(problem: Problem, penalty: Penalty) -> Tensor:
    """The model whose penalised weights are zero, while what carries no penalty minimises f.

    Args:
        problem: F, and the start from which biases and unpenalised weights are looked for.
        penalty: It says which weights are penalised.
    """
    x = problem.start.clone()
    positions = torch.arange(len(x))
    penalised = torch.cat([part.flatten() for part in penalty.penalised(positions)])
    free = torch.ones(len(x), dtype=torch.bool).index_fill_(0, penalised, False)
    x[~free] = 0

    def value_and_gradient(others: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        x[free] = torch.from_numpy(others).to(x)
        value, gradient = problem.value_and_gradient(x)
        return value, gradient[free].double().cpu().numpy()

    if bool(free.any()):
        start = x[free].double().cpu().numpy()
        found = minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", tol=1e-12)
        x[free] = torch.from_numpy(found.x).to(x)
    return x


def _spaced(first: float, last: float, count: int) -> tuple[float, ...]:
    return tuple(float(kappa) for kappa in np.geomspace(first, last, count))
