"""Choosing κ: a path with warm starts, and cross-validation inside sites or over them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedcanon.errors import FedcanonError
from fedcanon.objectives import Problem
from fedcanon.objectives.linear import LinearObjective
from fedcanon.penalties import Penalty
from fedcanon.randomness import Purpose, generator
from fedcanon.statistics.solving import Solution
from fedcanon.statistics.study import Study, objective_of

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
Over = Literal["rows", "sites"]

COUNT, SPAN = 50, 1e-3
"""How many κ an automatic path has, and the last of them as a part of the first."""


@dataclass(frozen=True)
class Path:
    """Models for decreasing κ, each begun at the one before.

    Args:
        kappas: The values of κ.
        solutions: The models.
    """

    kappas: Array
    solutions: list[Solution]

    @property
    def vectors(self) -> list[Tensor]:
        """The models as vectors."""
        return [solution.vector for solution in self.solutions]


@dataclass(frozen=True)
class Validation:
    """The deviance of models on rows that they were not fitted with.

    Args:
        kappas: The values of κ.
        deviances: The mean deviance of a row for each fold (rows) and κ (columns).
        sizes: The weight of each fold.
    """

    kappas: Array
    deviances: Array
    sizes: Array

    @property
    def means(self) -> Array:
        """The mean deviance over all rows, for each κ."""
        means: Array = np.average(self.deviances, axis=0, weights=self.sizes)
        return means

    @property
    def errors(self) -> Array:
        """The standard error of that mean, from how folds differ."""
        squares = np.average((self.deviances - self.means) ** 2, axis=0, weights=self.sizes)
        errors: Array = np.sqrt(squares / (len(self.sizes) - 1))
        return errors

    @property
    def best(self) -> int:
        """The place of the κ with the smallest mean deviance."""
        return int(np.argmin(self.means))

    @property
    def simplest(self) -> int:
        """The place of the largest κ whose mean is within one standard error of the smallest."""
        limit = self.means[self.best] + self.errors[self.best]
        return int(np.argmax(np.where(self.means <= limit, self.kappas, -np.inf)))


def automatic_kappas(study: Study, penalty_at: Callable[[float], Penalty]) -> Array:
    """Return 50 values, from the smallest κ at which all is 0 down to a thousandth of it."""
    largest = study.largest_kappa(penalty_at)
    return np.geomspace(largest, SPAN * largest, COUNT)


def follow_path(
    study: Study,
    penalty_at: Callable[[float], Penalty],
    kappas: Sequence[float] | Array,
    watch: Callable[[], object] = lambda: None,
) -> Path:
    """Fit a model for each κ, in decreasing order.

    Args:
        study: The study.
        penalty_at: The penalty for a κ.
        kappas: The values of κ.
        watch: Is called after each model.
    """
    ordered = np.sort(np.asarray(kappas, dtype=np.float64))[::-1]
    solutions: list[Solution] = []
    for kappa in ordered:
        start = solutions[-1].vector if solutions else None
        solutions.append(study.fitted(penalty_at(float(kappa)), start))
        watch()
    return Path(ordered, solutions)


def validate(
    study: Study,
    table: Mapping[str, Any],
    kappas: Array,
    *,
    folds: int = 5,
    over: Over = "rows",
    seed: int = 0,
    watch: Callable[[], object] = lambda: None,
) -> Validation:
    """Cross-validate the path: each fold is left out once and explained by the rest.

    Columns are prepared once, from all rows.

    Args:
        study: The study.
        table: The penalty, without its kappa.
        kappas: The values of κ, decreasing.
        folds: How many parts the rows of every site are divided into.
        over: "rows" leaves out a part of each site's rows, "sites" one site after the other.
        seed: Decides the parts.
        watch: Is called after each model.

    Raises:
        FedcanonError: There are too few folds, sites or rows.
    """
    parts = _parts(study, folds, over, seed)
    deviances, sizes = np.empty((len(parts), len(kappas))), np.empty(len(parts))
    for k, left_out in enumerate(parts):
        rest, test = _divided(study, left_out)
        path = follow_path(rest, partial(_penalty, study, table), kappas, watch)
        sizes[k] = math.fsum(test.weights)
        deviances[k] = [_deviance(study, rest, test, vector) for vector in path.vectors]
    return Validation(kappas, deviances, sizes)


def _parts(study: Study, folds: int, over: Over, seed: int) -> list[dict[int, Rows]]:
    """Return the rows that each fold leaves out, by site."""
    counts = [len(site.table) for site in study.sites]
    if over == "sites":
        if len(counts) < 2:
            raise FedcanonError("to leave out one site after the other there must be two or more.")
        return [{k: np.arange(n)} for k, n in enumerate(counts)]
    if not 2 <= folds <= min(counts):
        raise FedcanonError(
            f"rows are divided into 2 folds or more, and at most as many as the smallest site has "
            f"rows ({min(counts)}), not into {folds}."
        )
    orders = [generator(seed, Purpose.FOLDS, k).permutation(n) for k, n in enumerate(counts)]
    return [
        {k: np.sort(order[fold::folds]) for k, order in enumerate(orders)} for fold in range(folds)
    ]


def _divided(study: Study, left_out: Mapping[int, Rows]) -> tuple[Study, Problem]:
    """Return the study without some rows, and the problem of these rows."""
    kept, tested = list[LinearObjective](), list[LinearObjective]()
    for k, site in enumerate(study.sites):
        mask = np.zeros(len(site.table), dtype=bool)
        mask[left_out.get(k, np.empty(0, np.intp))] = True
        if not mask.all():
            rest = replace(site, table=site.table[~mask])
            kept.append(objective_of(rest, study.recipe, study.question))
        if mask.any():
            part = replace(site, table=site.table[mask])
            tested.append(objective_of(part, study.recipe, study.question))
    return replace(study, problem=_problem(study, kept)), _problem(study, tested)


def without_rows(study: Study, left_out: Mapping[int, Rows]) -> Study:
    """Return the study without some rows, by the place of their site."""
    return _divided(study, left_out)[0]


def _penalty(study: Study, table: Mapping[str, Any], kappa: float) -> Penalty:
    return study.penalty({**table, "kappa": kappa})


def _problem(study: Study, clients: Sequence[LinearObjective]) -> Problem:
    return Problem(clients, study.problem.start, [client.total_weight for client in clients])


def _deviance(study: Study, rest: Study, test: Problem, vector: Tensor) -> float:
    """Return the mean deviance of the rows that were left out.

    A partial likelihood of few rows has few at risk. So it is what these rows add to the
    likelihood of the rest, as in glmnet.
    """
    weight = math.fsum(test.weights)
    if study.has_intercept:
        return _total(test, vector) / weight
    return (_total(study.problem, vector) - _total(rest.problem, vector)) / weight


def _total(problem: Problem, vector: Tensor) -> float:
    clients = [client for client in problem.clients if isinstance(client, LinearObjective)]
    return math.fsum(client.total_weight * client.deviance(vector) for client in clients)
