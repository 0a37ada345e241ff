"""A study over sites: from their tables to a problem, and from a model back to their columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcanon.errors import FedcanonError
from fedcanon.objectives import Problem
from fedcanon.objectives.cox import Cox
from fedcanon.objectives.families import FAMILIES
from fedcanon.objectives.linear import LinearObjective
from fedcanon.penalties import Penalty, on_weights
from fedcanon.runs.named import make_penalty
from fedcanon.search.kappas import largest_kappa
from fedcanon.statistics.refit import refit, wald
from fedcanon.statistics.solving import Solution, solve, support
from fedcanon.tables.preparing import LocalSites, Plan, prepare
from fedcanon.tables.recipe import Recipe
from fedcanon.tables.site import SiteTable

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]

COX = "cox"


@dataclass(frozen=True)
class Question:
    """What a study asks.

    Args:
        response: The column to be explained; for "cox" the time of the event, or of the end of
            observation.
        family: How the response is distributed: a name of ``FAMILIES``, or "cox".
        options: Parameters of the family, such as ``{"dispersion": 0.5}``.
        event: For "cox", the column that says whether the event has happened.
        weights: The column with the weights of rows; None weighs all alike.
        offset: The column with what is added to the score; for counts, the logarithm of exposure.
        plan: The columns that explain, and what is done to them.
        free: Those of them that are not penalised.
    """

    response: str
    plan: Plan
    family: str = "gaussian"
    options: Mapping[str, Any] = field(default_factory=dict)
    event: str | None = None
    weights: str | None = None
    offset: str | None = None
    free: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.family not in (*FAMILIES, COX):
            names = ", ".join((*FAMILIES, COX))
            raise FedcanonError(f"there is no family '{self.family}': use one of {names}.")
        if (self.event is not None) != (self.family == COX):
            raise FedcanonError('the family "cox" needs a column event, and no other has one.')
        for name in self.free:
            if name not in self.plan.columns:
                raise FedcanonError(f"free names '{name}', which is none of the columns.")


@dataclass(frozen=True)
class Study:
    """The tables of the sites, prepared, as a problem over clients.

    Args:
        question: What is asked.
        sites: The tables.
        recipe: What was done to their columns. Those that are free come last.
        problem: f, with a client for each site, weighted by its rows.
    """

    question: Question
    sites: Sequence[SiteTable]
    recipe: Recipe
    problem: Problem

    @property
    def names(self) -> list[str]:
        """The names of the entries of a model."""
        return [*self.recipe.columns, *(["(intercept)"] if self.has_intercept else [])]

    @property
    def has_intercept(self) -> bool:
        """Whether models have an intercept, which the baseline hazard of Cox's contains."""
        return self.question.family != COX

    def penalty(self, table: Mapping[str, Any]) -> Penalty:
        """Return a penalty on all columns that are not free, from its name and its parameters.

        Groups may be ``"variables"``: all columns that come from one column of the tables.
        """
        given = dict(table)
        if given.get("groups") == "variables":
            given |= {"groups": self.groups, "axis": 1}
        return on_weights(make_penalty(given, self.problem.layout), self.problem.layout)

    @property
    def groups(self) -> list[list[int]]:
        """The penalised columns that come from each column of the tables."""
        found: dict[str, list[int]] = {}
        for k, name in enumerate(self.recipe.variables):
            if name not in self.question.free:
                found.setdefault(name, []).append(k)
        return list(found.values())

    def largest_kappa(self, penalty_at: Callable[[float], Penalty]) -> float:
        """Return the smallest κ at which all penalised coefficients are 0."""
        return largest_kappa(self.problem, penalty_at)

    def fitted(self, penalty: Penalty, start: Tensor | None = None) -> Solution:
        """Return the model that minimises f + h."""
        return solve(self.problem, penalty, start=start)

    def coefficients(self, vector: Tensor) -> Array:
        """Return the coefficients of a model on the scale of the tables, the intercept last."""
        model = vector.double().numpy()
        d = len(self.recipe.columns)
        own, intercept = self.recipe.original(model[:d], float(model[d:].sum()))
        return np.append(own, intercept) if self.has_intercept else own

    def summary(self, solution: Solution, penalty: Penalty, *, level: float = 0.95) -> pd.DataFrame:
        """Return a table of coefficients on the scale of the tables.

        Beside the penalised coefficients it has those without penalty on the selected columns, with
        standard errors, p-values and intervals, which are conditional on the selection.

        Args:
            solution: The model.
            penalty: The penalty that it was fitted with.
            level: The level of the intervals.
        """
        import pandas as pd

        chosen = support(solution.vector, penalty)
        again = refit(self.problem, chosen)
        rows = self._to_original()[:, chosen.numpy()]
        errors = np.sqrt(np.einsum("ij,jk,ik->i", rows, again.covariance, rows))
        shown = [*chosen[: len(self.recipe.columns)].tolist(), *([True] * self.has_intercept)]
        estimates = self.coefficients(again.vector)
        z, p, low, high = wald(estimates[shown], errors[shown], level=level)
        table = pd.DataFrame(
            {"coefficient": self.coefficients(solution.vector)}, index=pd.Index(self.names)
        )
        columns = ("refit", "error", "z", "p", "low", "high")
        for name, values in zip(
            columns, (estimates[shown], errors[shown], z, p, low, high), strict=True
        ):
            table.loc[shown, name] = values
        return table

    def _to_original(self) -> Array:
        """Return the matrix that maps a model to its coefficients on the scale of the tables."""
        scales, means = self.recipe.scales, self.recipe.means
        matrix = np.diag(1 / scales)
        if not self.has_intercept:
            return matrix
        whole = np.zeros((len(scales) + 1,) * 2)
        whole[:-1, :-1] = matrix
        whole[-1, :-1], whole[-1, -1] = -means / scales, 1.0
        return whole


def begin_study(sites: Sequence[SiteTable], question: Question) -> Study:
    """Prepare the tables of all sites alike, and make the problem.

    Raises:
        FedcanonError: A table lacks a column or a response, or cannot be prepared.
    """
    plan = question.plan
    ordered = [name for name in plan.columns if name not in question.free]
    ordered += [name for name in plan.columns if name in question.free]
    recipe = prepare(LocalSites(sites), Plan(**{**vars(plan), "columns": ordered}))
    clients = [objective_of(site, recipe, question) for site in sites]
    start = torch.zeros(clients[0].layout.size, dtype=torch.float64)
    problem = Problem(clients, start, [client.total_weight for client in clients])
    return Study(question, sites, recipe, problem)


def objective_of(site: SiteTable, recipe: Recipe, question: Question) -> LinearObjective:
    """Return the loss of a model on the rows of a site.

    Raises:
        FedcanonError: A response is missing or cannot be; the site is named.
    """
    features = recipe.prepared(site.table)
    free = sum(name in question.free for name in recipe.variables)
    response = site.numbers_of(question.response)
    try:
        if question.event is not None:
            return Cox(features, response, site.numbers_of(question.event), free=free)
        return LinearObjective(
            features,
            response,
            FAMILIES[question.family](**question.options),
            weights=None if question.weights is None else site.numbers_of(question.weights),
            offset=None if question.offset is None else site.numbers_of(question.offset),
            free=free,
        )
    except FedcanonError as error:
        raise FedcanonError(f"the site {site.name}: {error}") from None
