"""What is known of a problem when step sizes are chosen, and the rules that methods share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Facts:
    """What is known of a problem when step sizes are chosen.

    Args:
        L: The largest smoothness of a client's loss.
        rho: ρ, where h is ρ-weakly convex.
        tried: Whether 1/L is instead a local step that proved good in trials on the clients, as for
            networks, whose curvature at the start says little.
        exact: Whether local gradients are exact, not those of mini-batches.
        compressed: Whether uploads are compressed, whose errors acceleration would amplify.
    """

    L: float
    rho: float = 0.0
    tried: bool = False
    exact: bool = True
    compressed: bool = False


@dataclass(frozen=True)
class StepRules:
    """The step sizes that theory suggests for a method.

    Args:
        automatic: The value of every parameter that may be "auto". A value may depend on others: it
            is taken from rules that are computed after the others are known.
        beta_limits: Upper limits on β, each with its reason as the key.
    """

    automatic: dict[str, Any]
    beta_limits: dict[str, float]


def step_rules(L: float, local_steps: int, **automatic: Any) -> StepRules:
    """Return rules with the limits on β of all methods that take K local gradient steps."""
    limits = {
        "β ≤ 2/L: stable local steps": 2 / L,
        "βKL ≤ 1: local models stay near": 1 / (local_steps * L),
    }
    return StepRules(automatic, limits)


def local_prox_rules(facts: Facts, local_steps: int) -> StepRules:
    """Return the rules of methods with a prox in each of K local steps: βK is at most 1/(2ρ)."""
    total = safe_step(facts, local_steps * local_step(facts, local_steps))
    return step_rules(facts.L, local_steps, beta=total / local_steps)


def local_step(facts: Facts, local_steps: int) -> float:
    """Return β = 1/(KL), with which K steps are as long as one gradient step; 1/L if tried."""
    return 1 / facts.L if facts.tried else 1 / (local_steps * facts.L)


def safe_step(facts: Facts, step: float | None = None) -> float:
    """Return a step of 1/L, or the given one, but at most 1/(2ρ): half of the prox's limit."""
    step = 1 / facts.L if step is None else step
    return min(step, 0.5 / facts.rho) if facts.rho else step
