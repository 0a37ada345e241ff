"""The values of κ along a path."""

from __future__ import annotations

import inspect
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
"""How many values an automatic path has, and the ratio of its last value to its first."""

_LARGEST = 2.0**40
"""The largest κ that is tried: a smooth penalty may leave weights other than zero at any κ."""


def parse_kappas(text: str) -> tuple[float, ...]:
    """Read ``first:last:count``: so many values with equal ratios between neighbours.

    Raises:
        FedcanonError: the text has another form.
    """
    parts = [parse_value(part) for part in text.split(":")]
    numbers = [part for part in parts if isinstance(part, int | float) and part > 0]
    if len(parts) != 3 or len(numbers) != 3 or not isinstance(parts[2], int) or parts[2] < 2:
        raise FedcanonError(
            f"--kappas takes first:last:count with two or more values above 0, such as "
            f"1e-1:1e-4:20, not '{text}'."
        )
    return _spaced(*parts)


def automatic_kappas(problem: Problem, penalty_at: Callable[[float], Penalty]) -> tuple[float, ...]:
    """20 values from the smallest κ at which all penalised weights are zero to a thousandth of it.

    Args:
        problem: the loss f.
        penalty_at: makes the penalty for a κ.

    Raises:
        FedcanonError: there is no such κ, or the model is a network, which cannot start there.
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
    """Raise a FedcanonError if the penalty of a configuration has no κ."""
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
    """The smallest κ at which it is stationary that all penalised weights are zero.

    The weights without a penalty, such as biases, minimise f there. Zero is stationary if
    0 = prox_{ah}(0 − a∇f): for ℓ1 this means κ ≥ max |∇f|, for groups of weights that κ is at
    least the largest norm of a group's gradient, and so on. κ is found by bisection.

    Args:
        problem: the loss f.
        penalty_at: makes the penalty for a κ.

    Raises:
        FedcanonError: the gradient is zero, or no κ makes all weights zero.
    """
    gradient = _gradient_at_zero(problem, penalty_at(1.0)).double()
    if not any(bool(part.any()) for part in penalty_at(1.0).penalised(gradient)):
        raise FedcanonError("the gradient vanishes where all weights are zero: give --kappas.")

    def all_zero(kappa: float) -> bool:
        penalty = penalty_at(kappa)
        step = stationarity_step(penalty)
        zeros, count = penalty.zeros(penalty.prox_(-step * gradient, step))
        return zeros == count

    high = 1.0
    while not all_zero(high):
        high *= 2
        if high > _LARGEST:
            raise FedcanonError("no kappa makes all weights zero here: give --kappas.")
    while all_zero(high / 2):
        high /= 2
    low = high / 2
    for _ in range(30):  # down to the rounding errors of single precision
        middle = (low * high) ** 0.5
        low, high = (low, middle) if all_zero(middle) else (middle, high)
    return high


def _gradient_at_zero(problem: Problem, penalty: Penalty) -> Tensor:
    """∇f where the penalised weights are zero and the others, such as biases, minimise f."""
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
    return problem.value_and_gradient(x)[1]


def _spaced(first: float, last: float, count: int) -> tuple[float, ...]:
    return tuple(float(kappa) for kappa in np.geomspace(first, last, count))
