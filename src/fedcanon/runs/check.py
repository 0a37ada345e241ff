"""Which conditions on the step sizes a configuration meets, and what would mend the others."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedcanon import theory
from fedcanon.algorithms import Algorithm, FedCanon, FedCanonII
from fedcanon.algorithms.schedules import step_at
from fedcanon.errors import FedcanonError
from fedcanon.runs.build import build_problem, check_names
from fedcanon.runs.config import Config
from fedcanon.runs.named import make_algorithm, make_penalty
from fedcanon.runs.steps import estimated_smoothness, fill_in

PROX_STEP = "prox step"
"""Stands for the setting where a method has no α of its own, such as FedADMM with 1/η."""


@dataclass(frozen=True)
class Condition:
    """An upper limit on a step size, and why.

    A ``required`` condition is needed to run at all, and strictly; the others are what theory asks
    for. One that ``needs_rho`` says nothing about a penalty that is not weakly convex.
    """

    reason: str
    setting: str
    value: float
    limit: float
    required: bool = False
    needs_rho: bool = False

    @property
    def holds(self) -> bool:
        """Whether the step size is within the limit."""
        return self.value < self.limit if self.required else self.value <= self.limit * (1 + 1e-9)


@dataclass(frozen=True)
class Report:
    """The conditions on one configuration, with the constants behind them."""

    L: float
    rho: float
    in_theory: bool
    conditions: list[Condition]

    @property
    def remedy(self) -> dict[str, float]:
        """Settings with a broken condition, and a value that would meet all of theirs."""
        broken = {c.setting for c in self.conditions if not c.holds}
        return {
            setting: min(_just_below(c) for c in self.conditions if c.setting == setting)
            for setting in sorted(broken)
        }


def _just_below(condition: Condition) -> float:
    """The limit rounded down to three digits, and within a strict one."""
    limit = condition.limit * (0.99 if condition.required else 1)
    if math.isinf(limit):
        return limit
    unit = 10.0 ** (math.floor(math.log10(limit)) - 2)
    return math.floor(limit / unit) * unit


def check_config(config: Config, mu: float | None = None) -> Report:
    """Estimate L for a configuration and check its step sizes against every condition.

    Theorem 2 is checked where its constant ``mu`` of the PL condition is given.
    """
    if mu is not None and not 0 < mu < math.inf:
        raise FedcanonError(f"the PL constant μ must be a positive, finite number, not {mu:g}.")
    check_names(config)
    problem = build_problem(config)
    penalty = make_penalty(config.penalty, problem.layout)
    L = estimated_smoothness(config, problem)
    algorithm = make_algorithm(fill_in(config.algorithm, L, penalty.rho))
    conditions = conditions_on(algorithm, L, penalty.rho, config.rounds, mu)
    if not penalty.in_theory:  # no ρ exists, so nothing can be said about the prox or a theorem
        conditions = [c for c in conditions if not c.needs_rho]
    return Report(L, penalty.rho, penalty.in_theory, conditions)


def conditions_on(
    algorithm: Algorithm, L: float, rho: float, rounds: int, mu: float | None = None
) -> list[Condition]:
    """The conditions that concern this algorithm, at the step sizes of its first round."""
    reach = algorithm.prox_step(rounds)
    beta = step_at(getattr(algorithm, "beta", 0.0), 0)
    found: list[Condition] = []
    if reach:
        domain = 1 / rho if rho else math.inf
        by_alpha = hasattr(algorithm, "alpha")
        reason = f"{'α' if by_alpha else PROX_STEP} < 1/ρ: a single-valued prox"
        setting = "alpha" if by_alpha else PROX_STEP
        found.append(Condition(reason, setting, reach, domain, True, True))
        if by_alpha:
            found.append(Condition("α ≤ 1/L: exact steps descend", "alpha", reach, 1 / L))
    if beta:
        limits = algorithm.theory(L, rho).beta_limits
        found += [Condition(reason, "beta", beta, limit) for reason, limit in limits.items()]
    if isinstance(algorithm, FedCanon | FedCanonII):
        K = algorithm.local_steps
        found += _theorem("Theorem 1", reach, beta, K, L, rho, None)
        if mu is not None:
            found += _theorem("Theorem 2", reach, beta, K, L, rho, mu)
    return found


def _theorem(
    name: str, alpha: float, beta: float, K: int, L: float, rho: float, mu: float | None
) -> list[Condition]:
    limit = theory.largest_alpha(L, rho, mu)
    # δ grows with α, so β's limit is the one beside an admissible α.
    local_limit = theory.largest_beta(L, rho, K, min(alpha, limit), mu)
    return [
        Condition(f"{name}: bound on α(ρ+L) + 4α²L²", "alpha", alpha, limit, needs_rho=True),
        Condition(f"{name}: bound on (6+δ)β²K²L²", "beta", beta, local_limit, needs_rho=True),
    ]
