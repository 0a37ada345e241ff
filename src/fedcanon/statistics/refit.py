"""The model with the selected variables, without penalty, and how sure its coefficients are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from fedcanon.errors import FedcanonError
from fedcanon.objectives import Problem
from fedcanon.objectives.linear import LinearObjective
from fedcanon.penalties import Penalty
from fedcanon.statistics.solving import solve

Array = NDArray[np.float64]


@dataclass(frozen=True)
class OnSupport(Penalty):
    """Entries outside a support are 0: h is 0 there and infinite elsewhere.

    Args:
        support: Which entries may be other than 0.
    """

    support: Tensor

    def value(self, x: Tensor) -> float:
        return math.inf if bool(x[~self.support].any()) else 0.0

    def _prox_(self, x: Tensor, step: float) -> None:
        x[~self.support] = 0

    def penalised(self, x: Tensor) -> list[Tensor]:
        return [x[~self.support]]


@dataclass(frozen=True)
class Refit:
    """Coefficients without penalty, and their covariance, given the selection.

    Args:
        vector: The model; entries outside the support are 0.
        support: Which entries were estimated.
        covariance: That of the estimated entries, in their order.
        dispersion: φ of the family: 1, or Pearson's estimate.
    """

    vector: Tensor
    support: Tensor
    covariance: Array
    dispersion: float


def refit(problem: Problem, support: Tensor) -> Refit:
    """Fit the model without penalty on a support, and take the inverse of its information.

    The information is the sum of that of all clients. Standard errors are those of a model whose
    variables were chosen beforehand: selection by the same data makes them too small.

    Args:
        problem: f, over linear models.
        support: Which entries of the model may be other than 0.

    Raises:
        FedcanonError: The variables of the support depend on one another, or the family has no
            likelihood.
    """
    clients = _linear(problem)
    found = solve(problem, OnSupport(support), tolerance=1e-10)
    information = sum((c.information(found.vector) for c in clients), start=torch.zeros(()))
    own = information[support][:, support].double().numpy()
    squares = [client.pearson(found.vector) for client in clients]
    freedom = math.fsum(client.total_weight for client in clients) - len(own)
    known = [square for square in squares if square is not None]
    dispersion = math.fsum(known) / freedom if known else 1.0
    try:
        inverse = np.linalg.inv(own)
    except np.linalg.LinAlgError:
        inverse = np.full_like(own, math.nan)
    if not (np.isfinite(inverse).all() and np.linalg.cond(own) < 1e12):
        raise FedcanonError(
            "the selected variables depend on one another, so that they have no standard errors: "
            "use a larger kappa, or leave one of them out."
        )
    return Refit(found.vector, support, dispersion * inverse, dispersion)


def _linear(problem: Problem) -> list[LinearObjective]:
    clients = [client for client in problem.clients if isinstance(client, LinearObjective)]
    if len(clients) < len(problem.clients):
        raise FedcanonError("standard errors are for linear models with one response.")
    return clients


def wald(
    estimates: Array, errors: Array, *, level: float = 0.95
) -> tuple[Array, Array, Array, Array]:
    """Return z values, p-values, and the lower and upper ends of intervals of normal estimates."""
    z = estimates / errors
    p = 2 * stats.norm.sf(np.abs(z))
    width = stats.norm.ppf(0.5 + level / 2) * errors
    return z, p, estimates - width, estimates + width


def transformed(covariance: Array, rows: Sequence[Array]) -> Array:
    """Return the covariance of linear functions of estimates, each given by its coefficients."""
    matrix = np.stack(list(rows))
    found: Array = matrix @ covariance @ matrix.T
    return found
