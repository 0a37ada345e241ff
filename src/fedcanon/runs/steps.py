"""Replaces step sizes that are "auto", or are not given, by numbers."""

from __future__ import annotations

from dataclasses import replace

from fedcanon.algorithms import Facts
from fedcanon.errors import FedcanonError
from fedcanon.objectives import Problem
from fedcanon.objectives.lipschitz import smoothness
from fedcanon.objectives.warm_up import warm_up
from fedcanon.randomness import Purpose, generator
from fedcanon.runs.config import Config, Table
from fedcanon.runs.named import make_algorithm, make_penalty

AUTO = "auto"


def estimated_smoothness(config: Config, problem: Problem) -> float:
    """Return an estimate of L: the largest curvature of a client's loss at the starting point."""
    return smoothness(problem, generator(config.seed, Purpose.SMOOTHNESS))


def with_steps(config: Config, problem: Problem, facts: Facts | None = None) -> Config:
    """Return the configuration with numbers in place of "auto" and of steps that are not given.

    The ``facts`` are found out if they are not given.
    """
    if not open_steps(config.algorithm):
        return config
    if facts is None:
        facts = facts_of(config, problem)
    rho = make_penalty(config.penalty, problem.layout).rho
    table = fill_in(config.algorithm, replace(facts, rho=rho))
    return config.model_copy(update={"algorithm": table})


def facts_of(config: Config, problem: Problem) -> Facts:
    """Return what is known of a problem, but for the penalty; see ``find_facts``."""
    batch_size = None if config.batch_size == "full" else config.batch_size
    return find_facts(problem, batch_size, config.rounds, config.seed)


def find_facts(problem: Problem, batch_size: int | None, rounds: int, seed: int) -> Facts:
    """Return what is known of a problem, but for the penalty.

    Linear models with exact gradients have the curvature of their clients. For networks and
    mini-batches, clients try step sizes.

    Args:
        problem: The problem.
        batch_size: Samples in a mini-batch; None uses all samples of a client.
        rounds: The number of rounds.
        seed: Decides the random draws.
    """
    rng = generator(seed, Purpose.SMOOTHNESS)
    most = max(client.samples for client in problem.clients)
    exact = batch_size is None or batch_size >= most
    if exact and problem.clients[0].has_hessian:
        return Facts(smoothness(problem, rng, len(problem.clients)), rounds=rounds)
    return Facts(1 / warm_up(problem, batch_size, rng), tried=True, rounds=rounds)


def open_steps(table: Table) -> set[str]:
    """Return the parameters of an ``[algorithm]`` table that are "auto", or can be and are missing.

    Raises:
        FedcanonError: The table has a mistake, or a setting that cannot be "auto".
    """
    given = {key: value for key, value in table.items() if value != AUTO}
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
        values = {key: automatic[key] for key in sorted(steps)}
    return {**given, **values}
