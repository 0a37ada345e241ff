"""How much sites differ: the coefficients of each beside the common ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from fedcanon.errors import FedcanonError
from fedcanon.objectives import Problem
from fedcanon.statistics.refit import refit
from fedcanon.statistics.study import Study

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Differences:
    """The coefficients of every site without penalty, and how much they differ.

    Args:
        columns: The selected columns.
        sites: The sites that could be fitted alone; small ones may not.
        estimates: The coefficients on the scale of the tables, a row for each site.
        errors: Their standard errors.
    """

    columns: list[str]
    sites: list[str]
    estimates: Array
    errors: Array

    @property
    def q(self) -> Array:
        """Cochran's Q of every column: Σ (b_i − b̄)²/s_i², with b̄ weighted by 1/s_i²."""
        weights = 1 / self.errors**2
        means = (weights * self.estimates).sum(0) / weights.sum(0)
        q: Array = (weights * (self.estimates - means) ** 2).sum(0)
        return q

    @property
    def p(self) -> Array:
        """The p-values of Q, if all sites had the same coefficient."""
        p: Array = stats.chi2.sf(self.q, len(self.sites) - 1)
        return p

    @property
    def i_squared(self) -> Array:
        """The share of the differences that is not chance: max(0, 1 − (sites − 1)/Q)."""
        with np.errstate(divide="ignore"):
            share: Array = np.maximum(0.0, 1 - (len(self.sites) - 1) / self.q)
        return share


def differences(study: Study, support: Tensor) -> Differences:
    """Fit the selected columns at each site alone.

    Raises:
        FedcanonError: Fewer than two sites can be fitted alone.
    """
    count = len(study.recipe.columns)
    chosen = support[:count].numpy()
    scales = study.recipe.scales[chosen]
    names, estimates, errors = list[str](), list[Array](), list[Array]()
    for site, client in zip(study.sites, study.problem.clients, strict=True):
        try:
            alone = refit(Problem([client], study.problem.start), support)
        except FedcanonError:  # too few rows, or a column that is constant there
            continue
        own = np.sqrt(np.diag(alone.covariance))[: chosen.sum()]
        names.append(site.name)
        estimates.append(alone.vector.double().numpy()[:count][chosen] / scales)
        errors.append(own / scales)
    if len(names) < 2:
        raise FedcanonError("fewer than two sites have enough rows for a model of their own.")
    columns = [name for name, kept in zip(study.recipe.columns, chosen, strict=True) if kept]
    return Differences(columns, names, np.stack(estimates), np.stack(errors))
