"""Differential privacy of estimators: what a user says, and a training that keeps it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt

from fedcanon.algorithms import ALGORITHMS, Facts, FedCanonPlus
from fedcanon.errors import FedcanonError
from fedcanon.objectives import Problem
from fedcanon.penalties import Penalty
from fedcanon.privacy import ClientPrivacy, Privacy, RecordPrivacy
from fedcanon.runs.config import Section, Table, validated
from fedcanon.runs.federation import Federation
from fedcanon.runs.fitting import fit
from fedcanon.runs.named import find, make_algorithm
from fedcanon.runs.privacy import require_delta
from fedcanon.runs.result import Result
from fedcanon.runs.steps import fill_in, without_auto


class PrivacySettings(Section):
    """The parameter ``privacy`` of an estimator.

    All noisy numbers of ``rounds`` rounds together are (ε, δ)-differentially private. ``level`` is
    whose presence they hide: that of a record, or of a client with all of its records. ``clip`` is
    the largest norm of a record's gradient, or of a client's update. With ``sampling`` below 1 each
    record is drawn into a step, or each client into a round, with that probability, in secret.
    """

    epsilon: PositiveFloat
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    clip: PositiveFloat | None = None
    rounds: PositiveInt = 100
    local_steps: PositiveInt = 5
    sampling: Annotated[float, Field(gt=0, le=1)] = 1.0
    level: Literal["record", "client"] = "record"


class _Parameters(Section):
    """Gives keys the names that messages should have, such as privacy.epsilon."""

    privacy: PrivacySettings


def read_privacy(given: Mapping[str, Any], features: int | None) -> PrivacySettings:
    """Return the settings in a dictionary.

    Args:
        given: The dictionary.
        features: d, the number of features of a linear model; None stands for a network. If
            features have the mean 0 and the deviation 1, the features of a record and the 1 of the
            intercept have a norm of about √(d + 1). Half of that is the ``clip`` of records unless
            it is given: the norm of their gradients at the start of a logistic regression.

    Raises:
        FedcanonError: A key is unknown or missing, or a value cannot be.
    """
    if not isinstance(given, Mapping):
        raise FedcanonError(f'privacy is a dictionary such as {{"epsilon": 3}}, not {given!r:.40}.')
    plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in given.items()}
    settings = validated(_Parameters, {"privacy": plain}).privacy
    if settings.clip is not None:
        return settings
    if settings.level == "client":
        raise FedcanonError(
            "privacy of clients has no default for the clip: give privacy['clip'], the largest "
            "norm of a client's update."
        )
    if features is None:
        raise FedcanonError(
            "a network has no default for the clip: give privacy['clip'], the largest norm of a "
            "record's gradient."
        )
    return settings.model_copy(update={"clip": math.sqrt(features + 1) / 2})


class PrivateRun(NamedTuple):
    """A private training: its result, its guarantee, and the ε that it has spent."""

    result: Result
    privacy: Privacy
    epsilon: float


def train_privately(
    problem: Problem,
    penalty: Penalty,
    settings: PrivacySettings,
    table: Table,
    *,
    batch_size: int | None = None,
    seed: int = 0,
) -> PrivateRun:
    """Train by FedCanon+ so that nothing but noisy sums is computed from the data.

    Args:
        problem: The clients.
        penalty: h.
        settings: What is hidden, and how well.
        table: The method with its parameters. Steps that are "auto" or missing are βK = 1 and
            α = βK, or less if the prox needs it, which is for features of deviation about 1.
        batch_size: Samples of a local gradient, for privacy of clients only.
        seed: Decides the mini-batches; noise comes from the operating system.

    Raises:
        FedcanonError: The parts cannot be private together.

    Warns:
        RuntimeWarning: Noise will decide which weights are zero.
    """
    algorithm = _method(problem, penalty, table)
    privacy = _guarantee(settings, algorithm, len(problem.clients))
    if settings.level == "client":
        problem = replace(problem, weights=())  # equal, because a weight tells the size of a client
    federation = Federation(
        problem, algorithm, penalty, batch_size=batch_size, seed=seed, privacy=privacy
    )
    for text in federation.warnings(settings.rounds):
        warnings.warn(text, RuntimeWarning, stacklevel=5)  # where the user has called fit
    result = fit(federation, settings.rounds)
    assert federation.spending is not None
    return PrivateRun(result, privacy, federation.spending.epsilon)


def _method(problem: Problem, penalty: Penalty, table: Table) -> FedCanonPlus:
    """Return FedCanon+ with steps that depend on nothing that is private."""
    if find(str(table.get("name")), ALGORITHMS, "algorithm") is not FedCanonPlus:
        raise FedcanonError(
            'a private model is trained by FedCanon+: use algorithm="fedcanon+" or "auto".'
        )
    table = {"accelerated": False, **without_auto(table)}
    if "beta" not in table:
        table["beta"] = 1 / getattr(make_algorithm(table), "local_steps", 1)
    facts = Facts(1.0, rho=penalty.rho, tried=not problem.clients[0].has_hessian)
    algorithm = make_algorithm(fill_in(table, facts))
    assert isinstance(algorithm, FedCanonPlus)
    return algorithm


def _guarantee(settings: PrivacySettings, algorithm: FedCanonPlus, clients: int) -> Privacy:
    """Return the guarantee, with the noise that lets all rounds spend the budget."""
    budget, rounds = settings.epsilon, settings.rounds
    common = {"clip": settings.clip, "delta": settings.delta, "sampling": settings.sampling}
    if settings.level == "record":
        return RecordPrivacy.within(budget, rounds, steps=algorithm.local_steps, **common)
    if clients < 2:
        raise FedcanonError(
            "privacy of clients hides each of several among the others: say by groups which "
            'records are whose, or use the level "record".'
        )
    require_delta(settings.delta, clients)
    return ClientPrivacy.within(budget, rounds, **common)
