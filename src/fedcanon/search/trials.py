"""The trials of a sweep, which Optuna keeps in a database."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import RandomSampler, TPESampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from fedcanon.errors import FedcanonError, first_line
from fedcanon.search.goal import Goal
from fedcanon.search.sampler import Sampler
from fedcanon.search.space import Choices, Range, Space

RunOutcome = float | FedcanonError
"""The value that a run reached, or why it has none."""

_STUDY = "sweep"
optuna.logging.set_verbosity(optuna.logging.ERROR)


class TrialStatus(StrEnum):
    """Whether a trial is still running, has finished or has failed."""

    running = "running"
    finished = "finished"
    failed = "failed"


@dataclass(frozen=True)
class Trial:
    """One combination of settings, and what its runs reached.

    ``params`` are the settings, ``values`` what the run with each seed reached. Only a finished
    trial has values, and only a failed one has an ``error``.
    """

    number: int
    params: dict[str, Any]
    state: TrialStatus
    values: tuple[float, ...] = ()
    error: str = ""

    @property
    def mean(self) -> float:
        """The mean of its values over the seeds."""
        return statistics.fmean(self.values)

    @property
    def deviation(self) -> float | None:
        """The standard deviation of its values over the seeds; None for a single seed."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None


class Trials:
    """The trials of one sweep; new ones are proposed by a sampler.

    A proposal depends only on the seed, the number of the trial and the trials before it, so that
    a sweep that was interrupted goes on as if it had not been. A trial is written to the database
    with all its settings or not at all.

    Args:
        path: The file of the database.
        space: The settings that are varied.
        goal: What makes a trial better than another.
        sampler: How combinations are chosen.
        seed: The seed of the sampler.
    """

    def __init__(
        self, path: Path, space: Space, goal: Goal, sampler: Sampler, seed: int = 0
    ) -> None:
        self._distributions = {key: _distribution(axis) for key, axis in space.axes.items()}
        self._sampler, self._seed = sampler, seed
        self._grid = space.grid() if sampler is Sampler.grid else []
        self._direction = StudyDirection.MAXIMIZE if goal.maximise else StudyDirection.MINIMIZE
        try:
            self._storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
            self._study = optuna.create_study(
                study_name=_STUDY,
                storage=self._storage,
                direction=self._direction,
                load_if_exists=True,
            )
            self.all()
        # Optuna, SQLAlchemy, SQLite and JSON raise here, each with exceptions of its own.
        except Exception as error:
            raise FedcanonError(
                f"{path} is damaged or cannot be written ({first_line(error)}): put back a copy, "
                "or choose another --folder."
            ) from error

    def all(self) -> list[Trial]:
        """All trials so far, by their number."""
        return [_trial(frozen) for frozen in self._study.get_trials(deepcopy=False)]

    def begin(self) -> Trial:
        """Propose a new trial and write it to the database."""
        params = self._proposal(len(self._study.get_trials(deepcopy=False)))
        self._study.add_trial(
            optuna.trial.create_trial(
                state=TrialState.RUNNING, params=params, distributions=self._distributions
            )
        )
        return self.all()[-1]

    def end(self, trial: Trial, outcomes: Sequence[RunOutcome]) -> None:
        """Write what the runs of a trial reached; it has failed if one of them has no value."""
        errors = [outcome for outcome in outcomes if isinstance(outcome, FedcanonError)]
        if errors:
            self._note(trial, "error", str(errors[0]))
            self._study.tell(trial.number, state=TrialState.FAIL)
        else:
            values = [outcome for outcome in outcomes if isinstance(outcome, float)]
            self._note(trial, "values", values)
            self._study.tell(trial.number, statistics.fmean(values))

    def _proposal(self, number: int) -> dict[str, Any]:
        if self._sampler is Sampler.grid:
            return self._grid[number]
        seed = int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])
        kinds = {Sampler.random: RandomSampler, Sampler.tpe: TPESampler}
        # Asked in a copy, because Optuna would enter the settings of a new trial one by one.
        sampler = kinds[self._sampler](seed=seed)
        copy = optuna.create_study(direction=self._direction, sampler=sampler)
        copy.add_trials(self._study.get_trials(deepcopy=False))
        return copy.ask(self._distributions).params

    def _note(self, trial: Trial, key: str, value: Any) -> None:
        study = self._storage.get_study_id_from_name(_STUDY)
        number = self._storage.get_trial_id_from_study_id_trial_number(study, trial.number)
        self._storage.set_trial_user_attr(number, key, value)


def _distribution(axis: Choices | Range) -> BaseDistribution:
    if isinstance(axis, Choices):
        return CategoricalDistribution(axis.texts)
    if isinstance(axis.low, int) and isinstance(axis.high, int):
        return IntDistribution(axis.low, axis.high, log=axis.log)
    return FloatDistribution(axis.low, axis.high, log=axis.log)


def _trial(frozen: FrozenTrial) -> Trial:
    states = {TrialState.COMPLETE: TrialStatus.finished, TrialState.FAIL: TrialStatus.failed}
    state = states.get(frozen.state, TrialStatus.running)
    noted = frozen.user_attrs
    values = tuple(noted["values"]) if state is TrialStatus.finished else ()
    error = noted["error"] if state is TrialStatus.failed else ""
    return Trial(frozen.number, frozen.params, state, values, error)
