"""Replaces step sizes that are "auto" by numbers."""

from __future__ import annotations

from fedcanon.algorithms import Algorithm
from fedcanon.errors import FedcanonError
from fedcanon.objectives import Problem
from fedcanon.objectives.lipschitz import smoothness
from fedcanon.randomness import Purpose, generator
from fedcanon.runs.config import Config, Table
from fedcanon.runs.named import make_algorithm, make_penalty

AUTO = "auto"


def estimated_smoothness(config: Config, problem: Problem) -> float:
    """Return an estimate of L: the largest curvature of a client's loss at the starting point."""
    return smoothness(problem, generator(config.seed, Purpose.SMOOTHNESS))


def with_steps(config: Config, problem: Problem, L: float | None = None) -> Config:
    """Return the configuration with the numbers of the algorithm's theory in place of "auto".

    The smoothness ``L`` is estimated if it is not given.
    """
    if AUTO not in config.algorithm.values():
        return config
    rho = make_penalty(config.penalty, problem.layout).rho
    table = fill_in(config.algorithm, L or estimated_smoothness(config, problem), rho)
    return config.model_copy(update={"algorithm": table})


def fill_in(table: Table, L: float, rho: float) -> Table:
    """Return an ``[algorithm]`` table with numbers in place of "auto"; β last, from the others."""
    for keys in (table.keys() - {"beta"}, {"beta"}):
        automatic = draft_algorithm(table).theory(L, rho).automatic
        table = {
            k: automatic[k] if v == AUTO and k in keys & automatic.keys() else v
            for k, v in table.items()
        }
    return table


def draft_algorithm(table: Table) -> Algorithm:
    """Make the algorithm of a table, with a step of 1 in place of "auto".

    Raises:
        FedcanonError: The table has a mistake, or a setting that cannot be "auto".
    """
    open_steps = [key for key, value in table.items() if value == AUTO and key != "name"]
    others = {key: value for key, value in table.items() if key not in open_steps}
    algorithm = make_algorithm(others)
    can = sorted(k for k in algorithm.theory(L=1.0, rho=0.0).automatic if hasattr(algorithm, k))
    for key in open_steps:
        if key not in can:
            only = f": only {' and '.join(can)} can" if can else ""
            raise FedcanonError(f'algorithm.{key} cannot be "auto"{only}.')
    return make_algorithm({**others, **dict.fromkeys(open_steps, 1.0)})
