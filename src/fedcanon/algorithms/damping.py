"""Damped corrections: local steps that use only a part of what control variables say."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from fedcanon.algorithms.base import State
from fedcanon.algorithms.capabilities import Diagnosed
from fedcanon.algorithms.schedules import Step, require_step, step_at
from fedcanon.algorithms.step_rules import Facts, StepRules
from fedcanon.errors import FedcanonError

Gain = float | Literal["off"]
"""How much of a correction local steps may use; see ``damping``."""


def damping(gain: Gain, beta: float, local_steps: int) -> float:
    """Return λ = min(1, gain/(βK)), the part of a correction that local steps use; 1 if "off".

    Corrections feed back, because a control variable is measured on the path that it has bent. On
    networks this loop diverges at large steps unless it is damped.
    """
    return 1.0 if gain == "off" else min(1.0, gain / (beta * local_steps))


class Damped(Diagnosed):
    """A method whose local steps use the part λ of a correction; λ is recorded with the measures.

    Its automatic gain uses a quarter of corrections on networks: on several networks, partitions
    and numbers of local steps, that was the largest part with which no run at the tried β diverged.
    Linear models need no damping.
    """

    beta: Step
    local_steps: int
    gain: Gain

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.gain, str) and self.gain != "off":
            raise FedcanonError(f'gain must be a number, "off" or "auto", not "{self.gain}".')
        if not isinstance(self.gain, str):
            require_step("gain", self.gain)

    def theory(self, facts: Facts) -> StepRules:
        rules = super().theory(facts)
        gain: Gain = 0.25 * self.local_steps * step_at(self.beta, 0) if facts.tried else "off"
        return replace(rules, automatic={**rules.automatic, "gain": gain})

    def diagnostics(self, server: State) -> dict[str, float]:
        return {"damping": server["damping"]} if "damping" in server else {}

    def _damping(self, beta: float) -> State:
        """Return the entry of a broadcast that tells clients λ."""
        return {"damping": damping(self.gain, beta, self.local_steps)}

    def _recorded(self, sent: State) -> State:
        """Return what the server's state keeps of λ, for the records."""
        return {} if self.gain == "off" else {"damping": sent["damping"]}
