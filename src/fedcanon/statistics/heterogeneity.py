"""How much sites differ: the coefficients of each beside the common ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from fedcanon.errors import FedcanonError
from fedcanon.statistics.study import Study
from fedcanon.tables.sites import each

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Differences:
    """The coefficients of every site without penalty, and how much they differ.

    Args:
        columns: The selected columns.
        sites: The sites that could be fitted alone; small ones may not.
        estimates: The coefficients on the scale of the tables, a row for each site.
        errors: Their standard errors.
        left_out: Why other sites are not among them.
    """

    columns: list[str]
    sites: list[str]
    estimates: Array
    errors: Array
    left_out: Mapping[str, str] = field(default_factory=dict)

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
        p: Array = chdtrc(len(self.sites) - 1, self.q)
        return p

    @property
    def i_squared(self) -> Array:
        """The share of the differences that is not chance: max(0, 1 − (sites − 1)/Q)."""
        with np.errstate(divide="ignore"):
            share: Array = np.maximum(0.0, 1 - (len(self.sites) - 1) / self.q)
        return share


def differences(study: Study, support: Sequence[int]) -> Differences:
    """Fit the selected columns at each site alone.

    Args:
        study: The study.
        support: The entries of a model that are selected; see ``Study.support``.

    Raises:
        FedcanonError: Fewer than two sites can be fitted alone.
    """
    places = [k for k in support if k < len(study.model.recipe.columns)]
    scales = np.array(study.model.recipe.scales)[places]
    told = each(study.sites, "own_fit", model=study.model, support=list(support))
    names, estimates, errors, left_out = list[str](), list[Array](), list[Array](), dict[str, str]()
    for name, answer in told.items():
        if isinstance(answer, FedcanonError):
            left_out[name] = str(answer)
        elif not answer["fitted"]:
            left_out[name] = f"the site {name} has too few rows, or a column is constant there."
        else:
            names.append(name)
            estimates.append(np.asarray(answer["estimates"])[: len(places)] / scales)
            errors.append(np.asarray(answer["errors"])[: len(places)] / scales)
    if len(names) < 2:
        why = f" {next(iter(left_out.values()))}" if left_out else ""
        raise FedcanonError(f"fewer than two sites have a model of their own.{why}")
    columns = [study.names[k] for k in places]
    return Differences(columns, names, np.stack(estimates), np.stack(errors), left_out)
