"""Checks the step sizes of a configuration against the conditions of theory."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedcanon import theory
from fedcanon.algorithms import Algorithm, Facts, FedCanon, FedCanonII
from fedcanon.algorithms.schedules import step_at
from fedcanon.errors import FedcanonError
from fedcanon.objectives import Problem
from fedcanon.objectives.lipschitz import MOST_CLIENTS, MOST_SAMPLES
from fedcanon.runs.build import build_problem, check_names
from fedcanon.runs.config import Config
from fedcanon.runs.named import make_algorithm, make_penalty
from fedcanon.runs.steps import estimated_smoothness, with_steps
from fedcanon.threads import one_thread

PROX_STEP = "prox step"
"""The name of the setting for methods whose prox has another step than α, such as FedADMM's 1/η."""


@dataclass(frozen=True)
class Condition:
    """An upper limit on a step size.

    Args:
        reason: Why the limit exists.
        setting: The name of the step size.
        value: The step size.
        limit: The limit.
        required: Whether a run is refused unless value < limit. Other conditions, value ≤ limit,
            are those of convergence theory.
        needs_rho: Whether the condition applies to weakly convex penalties only.
    """

    reason: str
    setting: str
    value: float
    limit: float
    required: bool = False
    needs_rho: bool = False

    @property
    def holds(self) -> bool:
        """Whether the step size meets the condition."""
        return self.value < self.limit if self.required else self.value <= self.limit * (1 + 1e-9)


@dataclass(frozen=True)
class Report:
    """The conditions on a configuration, with the smoothness L and the weak convexity ρ.

    ``in_theory`` tells whether the penalty is weakly convex, as the theorems assume, and ``sample``
    what part of the data the estimate of L looked at; it is empty if that is all.
    """

    L: float
    rho: float
    in_theory: bool
    conditions: list[Condition]
    sample: str = ""

    @property
    def remedy(self) -> dict[str, float]:
        """For each setting that violates a condition, a value that meets all conditions on it."""
        broken = {c.setting for c in self.conditions if not c.holds}
        return {
            setting: min(_just_below(c) for c in self.conditions if c.setting == setting)
            for setting in sorted(broken)
        }


def _just_below(condition: Condition) -> float:
    """Return the limit rounded down to three digits; 1 % less if the limit itself is excluded."""
    limit = condition.limit * (0.99 if condition.required else 1)
    if math.isinf(limit):
        return limit
    unit = 10.0 ** (math.floor(math.log10(limit)) - 2)
    return math.floor(limit / unit) * unit


@one_thread()
def check_config(config: Config, mu: float | None = None) -> Report:
    """Estimate L for a configuration and check its step sizes against all conditions.

    Args:
        config: The configuration.
        mu: The constant μ of the PL condition; Theorem 2 is checked only if it is given.

    Raises:
        FedcanonError: The configuration has a mistake, or μ is not positive.
    """
    if mu is not None and not 0 < mu < math.inf:
        raise FedcanonError(f"the PL constant μ must be a positive, finite number, not {mu:g}.")
    check_names(config)
    problem = build_problem(config)
    penalty = make_penalty(config.penalty, problem.layout)
    L = estimated_smoothness(config, problem)
    algorithm = make_algorithm(with_steps(config, problem).algorithm)
    conditions = conditions_on(algorithm, L, penalty.rho, config.rounds, mu)
    if not penalty.in_theory:  # there is no ρ, so conditions that contain it do not apply
        conditions = [c for c in conditions if not c.needs_rho]
    return Report(L, penalty.rho, penalty.in_theory, conditions, _sample(problem))


def _sample(problem: Problem) -> str:
    """Say which part of the data ``estimated_smoothness`` looks at; empty if it is all."""
    count, words = len(problem.clients), ""
    if max(problem.samples) > MOST_SAMPLES and not problem.clients[0].has_hessian:
        words = f"up to {MOST_SAMPLES} samples of each of "
    if count <= MOST_CLIENTS:
        return words and f"{words}{count} clients"
    return f"{words}{MOST_CLIENTS} of {count:,} clients"


def conditions_on(
    algorithm: Algorithm, L: float, rho: float, rounds: int, mu: float | None = None
) -> list[Condition]:
    """Return the conditions on an algorithm: on its largest prox step, and on β of round 0.

    Args:
        algorithm: The algorithm.
        L: The smoothness of f.
        rho: The weak convexity of h.
        rounds: The number of rounds.
        mu: The constant of the PL condition, for Theorem 2.
    """
    prox_step = algorithm.prox_step(rounds)
    beta = step_at(getattr(algorithm, "beta", 0.0), 0)
    found: list[Condition] = []
    if prox_step:
        domain = 1 / rho if rho else math.inf
        by_alpha = hasattr(algorithm, "alpha")
        reason = f"{'α' if by_alpha else PROX_STEP} < 1/ρ: a single-valued prox"
        setting = "alpha" if by_alpha else PROX_STEP
        found.append(Condition(reason, setting, prox_step, domain, True, True))
        if by_alpha and not getattr(algorithm, "accelerated", False):  # then α is only a limit
            found.append(Condition("α ≤ 1/L: exact steps descend", "alpha", prox_step, 1 / L))
    if beta:
        limits = algorithm.theory(Facts(L, rho)).beta_limits
        found += [Condition(reason, "beta", beta, limit) for reason, limit in limits.items()]
    if isinstance(algorithm, FedCanon | FedCanonII):
        K = algorithm.local_steps
        found += _theorem("Theorem 1", prox_step, beta, K, L, rho, None)
        if mu is not None:
            found += _theorem("Theorem 2", prox_step, beta, K, L, rho, mu)
    return found


def _theorem(
    name: str, alpha: float, beta: float, K: int, L: float, rho: float, mu: float | None
) -> list[Condition]:
    limit = theory.largest_alpha(L, rho, mu)
    # δ grows with α, so the limit on β is computed for an α that meets its own condition.
    local_limit = theory.largest_beta(L, rho, K, min(alpha, limit), mu)
    return [
        Condition(f"{name}: bound on α(ρ+L) + 4α²L²", "alpha", alpha, limit, needs_rho=True),
        Condition(f"{name}: bound on (6+δ)β²K²L²", "beta", beta, local_limit, needs_rho=True),
    ]
