"""The model with the selected variables, without penalty, and how sure its coefficients are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from torch import Tensor

from fedcanon.errors import FedcanonError
from fedcanon.statistics.model import MULTINOMIAL, Model
from fedcanon.statistics.solving import Expansions, solve_without_penalty
from fedcanon.tables.sites import Sites, total

Array = NDArray[np.float64]


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
    variables were chosen beforehand: selection by the same data makes them too small. Weights of
    rows count as in R's glm. With weights of classes the covariance is A⁻¹BA⁻¹, where A is the
    information and B the sum of the squares of the rows' gradients.

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
    found = solve_without_penalty(Expansions(sites, model, places, penalised=False))
    told = total(
        sites, "information", model=model, vector=found.vector.tolist(), support=list(places)
    )
    dispersion, freedom = 1.0, float(told["rows"]) - len(places)
    if model.has_dispersion:
        if freedom <= 0:
            raise FedcanonError(
                f"{int(told['rows'])} rows are too few for the standard errors of {len(places)} "
                "coefficients."
            )
        dispersion = float(told["pearson"]) / freedom
    try:
        inverse = np.linalg.inv(told["information"])
    except np.linalg.LinAlgError:
        inverse = np.full_like(told["information"], math.nan)
    well_posed = np.isfinite(inverse).all() and np.linalg.cond(told["information"]) < 1e12
    if not well_posed:
        raise FedcanonError(
            "the selected variables depend on one another, so that they have no standard errors: "
            "use a larger kappa, or leave one of them out."
        )
    if not found.converged:
        raise FedcanonError(
            "the model without penalty has no solution, as when the selected variables separate "
            "the responses: use a larger kappa, or leave one of them out."
        )
    covariance = dispersion * inverse
    if model.class_weights:  # they are no numbers of rows: White's sandwich
        covariance = inverse @ told["scores"] @ inverse
    return Refit(found.vector, places, covariance, dispersion)


def wald(
    estimates: Array, errors: Array, *, level: float = 0.95
) -> tuple[Array, Array, Array, Array]:
    """Return z values, p-values, and the lower and upper ends of intervals of normal estimates."""
    z = estimates / errors
    p = 2 * ndtr(-np.abs(z))
    width = ndtri(0.5 + level / 2) * errors
    return z, p, estimates - width, estimates + width
