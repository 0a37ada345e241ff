"""A whole study: prepares, chooses κ, fits, and looks how sure and how good the model is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedcanon.errors import FedcanonError
from fedcanon.statistics.choosing import COUNT, Chosen, Over, choose, folds_of
from fedcanon.statistics.heterogeneity import Differences, differences
from fedcanon.statistics.model import ALL, BINOMIAL, MULTINOMIAL, Rows
from fedcanon.statistics.quality import (
    Calibration,
    Quality,
    calibration_of,
    calibration_slopes,
    quality_of,
)
from fedcanon.statistics.settings import StudySettings
from fedcanon.statistics.solving import Solution
from fedcanon.statistics.stability import Stability, stability
from fedcanon.statistics.study import EVERYWHERE, Study, begin_study
from fedcanon.tables.sites import Sites, each, total

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
Watch = Callable[[str, int, int], object]
"""Is told what is being done, how many steps of it are done, and how many there are."""


@dataclass(frozen=True)
class Goodness:
    """How good the model is somewhere.

    Args:
        quality: Deviance, AUC, Brier score, concordance.
        explained: The share of the deviance without penalised columns that the model explains.
        slope: The calibration slope, for two classes.
    """

    quality: Quality
    explained: float
    slope: float | None


@dataclass(frozen=True)
class Findings:
    """All that a study has found.

    Args:
        settings: What was asked.
        study: The sites and the model.
        kappa: κ; None if the penalty has none.
        chosen: How it was chosen; None if it was given.
        solution: The model.
        table: Its coefficients; see ``Study.summary``.
        goodness: How good it is over all sites, and at each that tells.
        calibration: The calibration curve over all sites, for two classes.
        differences: The coefficients of the sites; None if there are none.
        stability: The stability selection, if it was asked for.
        notes: What could not be done, and why.
    """

    settings: StudySettings
    study: Study
    kappa: float | None
    chosen: Chosen | None
    solution: Solution
    table: pd.DataFrame
    goodness: dict[str, Goodness]
    calibration: Calibration | None
    differences: Differences | None
    stability: Stability | None
    notes: list[str] = field(default_factory=list)

    @property
    def selected(self) -> list[str]:
        """The names of the entries of the model that are not 0, or carry no penalty."""
        return [self.study.names[k] for k in self.study.support(self.solution.vector)]


def investigate(
    sites: Sites,
    settings: StudySettings,
    available: Sequence[str] = (),
    watch: Watch = lambda what, done, of: None,
) -> Findings:
    """Do a study.

    Args:
        sites: The sites.
        settings: What is asked.
        available: The columns of the tables, for settings that name none.
        watch: Is told about the progress.

    Raises:
        FedcanonError: The settings do not fit the tables, or a site refuses.
    """
    watch("preparing the tables", 0, 1)
    study = begin_study(sites, settings.question(available))
    chosen = _choose(study, settings, watch)
    if chosen is None:
        watch("fitting the model", 0, 1)
        kappa = _given(settings) if study.model.penalised else None
        given = {} if kappa is None else {"kappa": kappa}
        solution = study.fitted(study.penalty({**settings.penalty, **given}))
    else:
        kappa, solution = chosen.kappa, chosen.solution
    notes = [] if solution.converged else [_not_converged(solution, study)]
    table = study.summary(solution, level=settings.level)
    if reason := table.attrs.get("refit"):
        notes.append(f"There are no standard errors: {reason}")
    watch("looking at the sites", 0, 1)
    goodness, calibration = _goodness(study, solution, notes)
    own = _differences(study, solution, notes)
    halves = None
    if settings.stability and kappa is not None:
        halves = _stability(study, settings, kappa, watch)
    elif settings.stability:
        notes.append("There is no stability selection without a penalty that has a kappa.")
    return Findings(
        settings, study, kappa, chosen, solution, table, goodness, calibration, own, halves, notes
    )


def _not_converged(solution: Solution, study: Study) -> str:
    return (
        f"The model is not solved to full accuracy: ‖G‖ is {solution.reached:.2g} after "
        f"{solution.rounds} rounds, above {study.tolerance:.2g}. Coefficients may be a little off."
    )


def _choose(study: Study, settings: StudySettings, watch: Watch) -> Chosen | None:
    """Choose κ; None if it is given, or there is none."""
    if _given(settings) is not None or not study.has_kappa(settings.penalty):
        return None
    left_out = []
    if settings.choose in ("1se", "min"):
        over: Over = "sites" if settings.leave_one_site_out else "rows"
        left_out = folds_of(study, settings.folds, over, settings.seed)
    steps = _Steps("following the path", COUNT, watch)
    penalty_at = study.penalties(settings.penalty)
    return choose(study, penalty_at, settings.choose, left_out, settings.measure, steps)


def _given(settings: StudySettings) -> float | None:
    """Return κ if it is given, alone or among the parameters of the penalty."""
    own = settings.penalty.get("kappa")
    if own is not None and settings.kappa is not None:
        raise FedcanonError("kappa is given twice, alone and in penalty: leave one out.")
    return settings.kappa if own is None else float(own)


class _Steps:
    """Counts steps."""

    def __init__(self, what: str, of: int, watch: Watch) -> None:
        self._what, self._of, self._watch, self._done = what, of, watch, 0
        watch(what, 0, of)

    def __call__(self) -> None:
        self._done += 1
        self._watch(self._what, self._done, self._of)


def _goodness(
    study: Study, solution: Solution, notes: list[str]
) -> tuple[dict[str, Goodness], Calibration | None]:
    vectors = [solution.vector.tolist(), study.null[0].tolist()]
    asked = {"model": study.model, "rows": [ALL, ALL], "vectors": vectors}
    everywhere = total(study.sites, "qualities", **asked)
    told = {EVERYWHERE: everywhere}
    for name, answer in each(study.sites, "qualities", **asked).items():
        if isinstance(answer, FedcanonError):
            notes.append(str(answer))
        else:
            told[name] = answer
    slopes = dict.fromkeys(told)
    if study.model.family == BINOMIAL:
        rows = [ALL if name == EVERYWHERE else Rows(site=name) for name in told]
        found = calibration_slopes(study.expansions, solution.vector, rows)
        slopes = dict(zip(told, found, strict=True))
    goodness = {}
    for name, answer in told.items():
        count = len(study.sites.names) if name == EVERYWHERE else 1
        own, null = (quality_of(answer, place, sites=count) for place in (0, 1))
        share = 1 - own.deviance / null.deviance if null.deviance > 0 else 0.0
        goodness[name] = Goodness(own, share, slopes[name])
    is_binary = study.model.family == BINOMIAL
    return goodness, calibration_of(everywhere, 0) if is_binary else None


def _differences(study: Study, solution: Solution, notes: list[str]) -> Differences | None:
    support = study.support(solution.vector)
    columns = len(study.model.recipe.columns)
    if study.model.family in (MULTINOMIAL, "huber") or not any(k < columns for k in support):
        return None
    if len(study.sites.names) < 2:
        return None
    try:
        found = differences(study, support)
    except FedcanonError as error:
        notes.append(f"Sites are not compared: {error}")
        return None
    notes += [f"Not compared with others: {reason}" for reason in found.left_out.values()]
    return found


def _stability(study: Study, settings: StudySettings, kappa: float, watch: Watch) -> Stability:
    """Select from halves of the rows along the path down to the chosen κ."""
    penalty_at = study.penalties(settings.penalty)
    largest = max(study.largest_kappa(penalty_at), kappa)
    kappas = np.geomspace(largest, kappa, 10)
    steps = _Steps("stability selection", len(kappas), watch)
    return stability(
        study,
        penalty_at,
        kappas,
        subsamples=settings.stability,
        seed=settings.seed,
        watch=steps,
    )
