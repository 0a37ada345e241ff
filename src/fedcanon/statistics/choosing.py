"""Choosing κ: a path with warm starts, cross-validation inside sites or over them, BIC and EBIC."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln
from torch import Tensor

from fedcanon.errors import FedcanonError
from fedcanon.penalties import Penalty
from fedcanon.statistics.model import ALL, COX, Rows
from fedcanon.statistics.quality import quality_of
from fedcanon.statistics.solving import Solution, Task
from fedcanon.statistics.study import Study
from fedcanon.tables.sites import total

Array = NDArray[np.float64]
Over = Literal["rows", "sites"]
Choice = Literal["1se", "min", "bic", "ebic"]
Measure = Literal["deviance", "discrimination"]

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
    """Measures of models on rows that they were not fitted with.

    Args:
        kappas: The values of κ.
        values: The measure for each fold (rows) and κ (columns); smaller is better.
        sizes: The weight of each fold.
    """

    kappas: Array
    values: Array
    sizes: Array

    @property
    def means(self) -> Array:
        """The mean over all rows, for each κ."""
        means: Array = np.average(self.values, axis=0, weights=self.sizes)
        return means

    @property
    def errors(self) -> Array:
        """The standard error of that mean, from how folds differ."""
        squares = np.average((self.values - self.means) ** 2, axis=0, weights=self.sizes)
        errors: Array = np.sqrt(squares / (len(self.sizes) - 1))
        return errors

    @property
    def best(self) -> int:
        """The place of the κ with the smallest mean."""
        return int(np.argmin(self.means))

    @property
    def simplest(self) -> int:
        """The place of the largest κ whose mean is within one standard error of the smallest."""
        limit = self.means[self.best] + self.errors[self.best]
        return int(np.argmax(np.where(self.means <= limit, self.kappas, -np.inf)))


@dataclass(frozen=True)
class Validations:
    """Cross-validation by the deviance, and by the AUC or the concordance where there is one.

    Args:
        deviance: The mean deviance of a row that was left out, or of an event for "cox".
        discrimination: 1 less the AUC, or the concordance, of rows that were left out; None if the
            family has neither.
    """

    deviance: Validation
    discrimination: Validation | None


@dataclass(frozen=True)
class Chosen:
    """A model of a path.

    Args:
        path: The path.
        place: The place of the model in it.
        validation: What cross-validation has found; None if it was not asked.
        validations: The same by all measures.
        criterion: BIC or EBIC of all models; None if it was not asked.
    """

    path: Path
    place: int
    validation: Validation | None = None
    validations: Validations | None = None
    criterion: Array | None = None

    @property
    def kappa(self) -> float:
        """κ of the model."""
        return float(self.path.kappas[self.place])

    @property
    def solution(self) -> Solution:
        """The model."""
        return self.path.solutions[self.place]


def choose(
    study: Study,
    penalty_at: Callable[[float], Penalty],
    how: Choice,
    left_out: Sequence[Rows],
    measure: Measure = "deviance",
    watch: Callable[[], object] = lambda: None,
) -> Chosen:
    """Follow an automatic path, and choose a model of it.

    Args:
        study: The study.
        penalty_at: The penalty for a κ.
        how: By cross-validation the simplest model within one standard error of the best ("1se") or
            the best ("min"), or the model with the smallest criterion ("bic", "ebic").
        left_out: The rows that each fold of cross-validation leaves out.
        measure: What cross-validation compares: the deviance, or the AUC or concordance.
        watch: Is called after each κ.

    Raises:
        FedcanonError: The measure does not exist for these responses.
    """
    kappas = automatic_kappas(study, penalty_at)
    if how in ("bic", "ebic"):
        [path] = follow_paths(study, penalty_at, kappas, watch=watch)
        criterion = bic(study, path, extended=how == "ebic")
        return Chosen(path, int(np.argmin(criterion)), criterion=criterion)
    path, both = validate(study, penalty_at, kappas, left_out, watch)
    found = both.deviance if measure == "deviance" else both.discrimination
    if found is None:
        raise FedcanonError(
            f"the family {study.model.family} has no AUC and no concordance to choose by, or a "
            'fold has only one class: use measure = "deviance".'
        )
    return Chosen(path, found.simplest if how == "1se" else found.best, found, both)


def automatic_kappas(study: Study, penalty_at: Callable[[float], Penalty]) -> Array:
    """Return 50 values, from the smallest κ at which all is 0 down to a thousandth of it."""
    largest = study.largest_kappa(penalty_at)
    return np.geomspace(largest, SPAN * largest, COUNT)


def follow_paths(
    study: Study,
    penalty_at: Callable[[float], Penalty],
    kappas: Sequence[float] | Array,
    rows: Sequence[Rows] = (ALL,),
    watch: Callable[[], object] = lambda: None,
) -> list[Path]:
    """Fit a model for each κ, in decreasing order, for several sets of rows at once.

    Args:
        study: The study.
        penalty_at: The penalty for a κ.
        kappas: The values of κ.
        rows: The sets of rows.
        watch: Is called after each κ.
    """
    ordered = np.sort(np.asarray(kappas, dtype=np.float64))[::-1].copy()
    starts: list[tuple[Tensor, Tensor | None]] = [(study.null[0], None)] * len(rows)
    found: list[list[Solution]] = []
    for kappa in ordered:
        penalty = penalty_at(float(kappa))
        tasks = [Task(penalty, x, own, known) for own, (x, known) in zip(rows, starts, strict=True)]
        found.append(study.solutions(tasks))
        starts = [(solution.vector, solution.expansion) for solution in found[-1]]
        watch()
    return [Path(ordered, [at[k] for at in found]) for k in range(len(rows))]


def folds_of(study: Study, folds: int, over: Over, seed: int = 0) -> list[Rows]:
    """Return the rows that each fold leaves out.

    Args:
        study: The study.
        folds: How many parts the rows of every site are divided into.
        over: "rows" leaves out a part of each site's rows, "sites" one site after the other.
        seed: Decides the parts.

    Raises:
        FedcanonError: There are too few folds or sites.
    """
    if over == "sites":
        if len(study.sites.names) < 2:
            raise FedcanonError("to leave out one site after the other there must be two or more.")
        return [Rows(site=name) for name in study.sites.names]
    if folds < 2:
        raise FedcanonError(f"rows are divided into 2 folds or more, not into {folds}.")
    return [Rows(parts=folds, part=k, seed=seed) for k in range(folds)]


def validate(
    study: Study,
    penalty_at: Callable[[float], Penalty],
    kappas: Array,
    left_out: Sequence[Rows],
    watch: Callable[[], object] = lambda: None,
) -> tuple[Path, Validations]:
    """Follow a path and cross-validate it: each fold is left out once and explained by the rest.

    Columns are prepared once, from all rows.

    Args:
        study: The study.
        penalty_at: The penalty for a κ.
        kappas: The values of κ, decreasing.
        left_out: The rows that each fold leaves out.
        watch: Is called after each κ.

    Returns:
        The path of all rows, and what was found on the rows that were left out.
    """
    rest = [replace(fold, rest=True) for fold in left_out]
    whole, *paths = follow_paths(study, penalty_at, kappas, [ALL, *rest], watch)
    vectors = [vector for path in paths for vector in path.vectors]
    shape, sites = (len(left_out), len(kappas)), len(study.sites.names)

    def told(rows: Sequence[Rows], *, pairs: bool = False) -> dict[str, Array]:
        """What sites tell of the models of every fold, each on rows of this fold."""
        asked = {
            "rows": [own for own in rows for _ in kappas],
            "vectors": [vector.tolist() for vector in vectors],
        }
        return total(study.sites, "qualities", model=study.model, **asked, pairs=pairs)

    tested = told(left_out, pairs=True)
    sizes = tested["weight"].reshape(shape)[:, 0]
    deviances = tested["deviance"].reshape(shape)
    if study.model.family == COX:
        # A partial likelihood of few rows has few at risk. So it is what these rows add to the
        # likelihood of the rest, for each event among them, as in glmnet.
        everything, others = told([ALL] * len(rest)), told(rest)
        deviances = (everything["deviance"] - others["deviance"]).reshape(shape)
        sizes = tested["happened"].reshape(shape)[:, 0]
    kept = sizes > 0  # a site without events tells nothing of a Cox model
    if kept.sum() < 2:
        raise FedcanonError("fewer than two folds leave out rows, or events: use fewer folds.")
    sizes, deviances = sizes[kept], deviances[kept]
    found = [quality_of(tested, k, sites=sites) for k in range(len(vectors))]
    every = [one.concordance if one.auc is None else one.auc for one in found]
    shares = np.array([math.nan if one is None else one for one in every]).reshape(shape)[kept]
    known = not np.isnan(shares).any()
    return whole, Validations(
        Validation(kappas, deviances / sizes[:, None], sizes),
        Validation(kappas, 1 - shares, sizes) if known else None,
    )


def bic(study: Study, path: Path, *, extended: bool = False) -> Array:
    """Return the Bayesian information criterion of every model of a path.

    It is 2·(sum of losses)/φ + k·log n for k coefficients other than 0 and n rows. φ is 1, or the
    mean deviance of the last model if the family has a dispersion; for normal errors the first
    term is n·log of the mean square. The extended criterion adds 2·log C(p, k) for p penalised
    entries (Chen, Chen 2008).

    Args:
        study: The study.
        path: The models.
        extended: Whether it is the extended criterion.
    """
    every, vectors = [ALL] * len(path.kappas), [vector.tolist() for vector in path.vectors]
    told = total(study.sites, "qualities", model=study.model, rows=every, vectors=vectors)
    n, deviances = float(told["weight"][0]), told["deviance"]
    free = len(study.unpenalised)
    sizes = np.array([len(study.support(vector)) for vector in path.vectors])
    if study.model.family == "gaussian":
        misfit = n * np.log(deviances / n)
    elif study.model.has_dispersion:
        misfit = deviances / (deviances[-1] / n)
    else:
        misfit = deviances
    p, k = study.model.size - free, sizes - free
    chances = gammaln(p + 1) - gammaln(k + 1) - gammaln(p - k + 1)
    found: Array = misfit + sizes * math.log(n) + (2 * chances if extended else 0)
    return found
