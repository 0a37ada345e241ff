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
from fedcanon.penalties import Zero
from fedcanon.statistics.model import MULTINOMIAL, Model
from fedcanon.statistics.solving import Expansions, Task, solve_by_newton
from fedcanon.tables.sites import Sites, total

Array = NDArray[np.float64]

TOLERANCE = 1e-9
"""The norm of the gradient at which a refit ends; columns have deviation 1."""


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
    support: tuple[int, ...]
    covariance: Array
    dispersion: float


def refit_over(sites: Sites, model: Model, support: Sequence[int]) -> Refit:
    """Fit a model without penalty on a support, and take the inverse of its information.

    The information is the sum of that of all sites. Standard errors are those of a model whose
    variables were chosen beforehand: selection by the same data makes them too small.

    Args:
        sites: The sites.
        model: The model.
        support: Which entries may be other than 0.

    Raises:
        FedcanonError: The variables of the support depend on one another, separate the responses,
            or the family has no likelihood.
    """
    if model.family in (MULTINOMIAL, "huber"):
        raise FedcanonError(f"there are no standard errors for the family {model.family}.")
    places = tuple(support)
    if not places:
        raise FedcanonError("no column is selected.")
    expansions = Expansions(sites, model, places, penalised=False)
    task = Task(Zero(), torch.zeros(len(places), dtype=torch.float64))
    [found] = solve_by_newton(expansions, [task], TOLERANCE)
    told = total(
        sites, "information", model=model, vector=found.vector.tolist(), support=list(places)
    )
    dispersion = 1.0
    if model.has_dispersion:
        dispersion = float(told["pearson"]) / (float(told["weight"]) - len(places))
    try:
        inverse = np.linalg.inv(told["information"])
    except np.linalg.LinAlgError:
        inverse = np.full_like(told["information"], math.nan)
    well_posed = np.isfinite(inverse).all() and np.linalg.cond(told["information"]) < 1e12
    if not (well_posed and found.converged):
        raise FedcanonError(
            "the selected variables depend on one another, or separate the responses, so that they "
            "have no standard errors: use a larger kappa, or leave one of them out."
        )
    return Refit(found.vector, places, dispersion * inverse, dispersion)


def wald(
    estimates: Array, errors: Array, *, level: float = 0.95
) -> tuple[Array, Array, Array, Array]:
    """Return z values, p-values, and the lower and upper ends of intervals of normal estimates."""
    z = estimates / errors
    p = 2 * stats.norm.sf(np.abs(z))
    width = stats.norm.ppf(0.5 + level / 2) * errors
    return z, p, estimates - width, estimates + width
