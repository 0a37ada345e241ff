"""Replaces step sizes that are "auto", or are not given, by numbers."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from fedcanon.algorithms import Facts, step_at
from fedcanon.compression import Identity
from fedcanon.errors import FedcanonError
from fedcanon.expansion import expansion_length
from fedcanon.layout import Layout
from fedcanon.objectives import Objective, Problem
from fedcanon.objectives.lipschitz import curvature, smoothness
from fedcanon.objectives.warm_up import best_step, trial_losses
from fedcanon.randomness import Purpose, generator
from fedcanon.runs.config import Config, Table
from fedcanon.runs.named import make_algorithm, make_compressor, make_penalty

AUTO = "auto"

MAX_FLOATS = 5_000_000
"""What a client sends in a round of Newton's method at most, if the method is automatic.

A model of 3,160 parameters has a Hessian of so many floats.
"""

MOST_TRIALS = 10
"""How many clients try steps for a network; all if there are no more."""
LARGE, MOST_LARGE_TRIALS = 1_000_000, 3
"""From so many parameters on, trials are long, and so many clients make them."""
MOST_TOLD = 200
"""How many clients tell the curvature of a linear model; all if there are no more."""


def estimated_smoothness(config: Config, problem: Problem) -> float:
    """Return an estimate of L: the largest curvature of a client's loss at the starting point."""
    return smoothness(problem, generator(config.seed, Purpose.SMOOTHNESS))


def with_steps(config: Config, problem: Problem, facts: Facts | None = None) -> Config:
    """Return the configuration with numbers in place of "auto" and of steps that are not given.

    The ``facts`` are found out if they are not given.
    """
    if config.privacy is not None:
        require_given_steps(config.algorithm)
        return config
    if not open_steps(config.algorithm):
        return config
    if facts is None:
        facts = facts_of(config, problem)
    return filled(config, problem.layout, facts)


def require_given_steps(table: Table) -> None:
    """Raise a ``FedcanonError`` if a step of a private run would be found from the data.

    Steps that are not given keep the defaults of the method, which know nothing of the data.

    Args:
        table: The ``[algorithm]`` table.
    """
    automatic = [key for key, value in table.items() if value == AUTO]
    if "beta" not in table and hasattr(make_algorithm(without_auto(table)), "beta"):
        automatic.append("beta")
    if automatic:
        raise FedcanonError(
            f"algorithm.{automatic[0]} cannot be automatic in a private run, because it would be "
            "found from the data: set it, for instance to what worked on public data of this kind."
        )


def filled(config: Config, layout: Layout, facts: Facts) -> Config:
    """Return the configuration with steps that follow from facts, penalty and compression."""
    rho = make_penalty(config.penalty, layout).rho
    compressed = not isinstance(make_compressor(config.compression), Identity)
    table = fill_in(config.algorithm, replace(facts, rho=rho, compressed=compressed))
    return config.model_copy(update={"algorithm": table})


def facts_of(config: Config, problem: Problem) -> Facts:
    """Return what is known of a problem, but for the penalty; see ``find_facts``."""
    batch_size = None if config.batch_size == "full" else config.batch_size
    return find_facts(problem, config.algorithm, batch_size, config.seed)


def find_facts(problem: Problem, table: Table, batch_size: int | None, seed: int) -> Facts:
    """Return what must be known of a problem to fill in a table, but for the penalty.

    Clients tell the curvature of a linear model. For a network some of them try steps, unless the
    local step is given.

    Args:
        problem: The problem.
        table: The ``[algorithm]`` table.
        batch_size: Samples in a mini-batch; None uses all samples of a client.
        seed: Decides the random draws.
    """
    rng = generator(seed, Purpose.SMOOTHNESS)
    count, most = len(problem.clients), MOST_TOLD
    if not problem.clients[0].has_hessian:
        given = make_algorithm(without_auto(table))
        if hasattr(given, "beta") and not open_steps(table) & {"beta", "eta", "strength"}:
            return Facts(1 / step_at(given.beta, 0), tried=True)
        most = MOST_TRIALS if len(problem.start) <= LARGE else MOST_LARGE_TRIALS
    chosen = rng.choice(count, min(count, most), replace=False)
    told = [told_by(problem.clients[i], problem.start, batch_size, rng) for i in chosen]
    return facts_from(told, [problem.weights[i] for i in chosen], exact=batch_size is None)


def told_by(
    objective: Objective, start: Tensor, batch_size: int | None, rng: np.random.Generator
) -> list[float]:
    """Return what a client tells the server, so that it can choose step sizes.

    This is the curvature of a linear model, which is largest at the start for logistic regression
    and the same everywhere for least squares. The curvature of a network says little: there it is
    the losses of ``trial_losses``.
    """
    if objective.has_hessian:
        return [curvature(objective, start, rng)]
    return trial_losses(objective, start, batch_size, rng)


def facts_from(told: Sequence[Sequence[float]], weights: Sequence[float], *, exact: bool) -> Facts:
    """Return the facts that follow from what each client has told.

    ``exact`` tells that local gradients are not those of mini-batches.

    Raises:
        FedcanonError: No step size can be found from it.
    """
    if len(told[0]) > 1:
        return Facts(1 / best_step(told, weights), tried=True, exact=exact)
    largest = max(numbers[0] for numbers in told)
    if not 0 < largest < math.inf:
        raise FedcanonError(
            "the curvature of the loss at the starting point is not positive and finite: set alpha "
            "and beta."
        )
    return Facts(largest, exact=exact)


def chooses_steps(table: Table, automatic: Collection[str]) -> bool:
    """Tell whether the length of steps is automatic: β, or α of a method without β.

    Args:
        table: The ``[algorithm]`` table.
        automatic: Its parameters that are automatic, or were before they were filled in.
    """
    return "beta" in automatic or ("alpha" in automatic and "beta" not in table)


def method_for(problem: Problem) -> str:
    """Return the method that needs the fewest rounds for a problem without any setting.

    It is Newton's for a linear model of moderate size, and else FedCanon+.
    """
    newton = problem.clients[0].has_hessian and has_few_floats(problem.layout.size)
    return "newton" if newton else "fedcanon+"


def has_few_floats(size: int) -> bool:
    """Tell whether a client may send the Hessian of a model of this size in a round."""
    return expansion_length(size) <= MAX_FLOATS


def without_auto(table: Table) -> Table:
    """Return an ``[algorithm]`` table without the parameters that are "auto"."""
    return {key: value for key, value in table.items() if value != AUTO or key == "name"}


def open_steps(table: Table) -> set[str]:
    """Return the parameters of an ``[algorithm]`` table that are "auto", or can be and are missing.

    Raises:
        FedcanonError: The table has a mistake, or a setting that cannot be "auto".
    """
    given = without_auto(table)
    algorithm = make_algorithm(given)
    can = {k for k in algorithm.theory(Facts(1.0)).automatic if hasattr(algorithm, k)}
    for key in table.keys() - given.keys() - can:
        only = f": only {' and '.join(sorted(can))} can" if can else ""
        raise FedcanonError(f'algorithm.{key} cannot be "auto"{only}.')
    return can - given.keys()


def fill_in(table: Table, facts: Facts) -> Table:
    """Return an ``[algorithm]`` table with values for all parameters that can be automatic."""
    steps = open_steps(table)
    given = {key: value for key, value in table.items() if key not in steps}
    values: Table = {}
    # η decides on β, and β on α and on the gain: the third time, all are from the right ones.
    for _ in range(3):
        automatic = make_algorithm({**given, **values}).theory(facts).automatic
        values = {key: _written(automatic[key]) for key in sorted(steps)}
    return {**given, **values}


def _written(value: Any) -> Any:
    """Return a value as a configuration has it: None is α = βK."""
    return "beta*K" if value is None else value
