"""Step sizes that change from round to round."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

from fedcanon.errors import FedcanonError


class Schedule(ABC):
    """A step size as a function of the round t, counted from 0."""

    start: float

    @abstractmethod
    def __call__(self, t: int) -> float:
        """Return the step size of round ``t``."""

    def __post_init__(self) -> None:
        require_step("a schedule's start", self.start)


def started_at(schedule: Schedule, start: float) -> Schedule:
    """Return a schedule of the same shape with another first value."""
    return replace(schedule, start=start)  # type: ignore[type-var]  # schedules are dataclasses


Step = float | Schedule
"""A step size: a number, or a schedule."""


def step_at(step: Step, t: int) -> float:
    """Return the value of a step size in round ``t``."""
    return step(t) if isinstance(step, Schedule) else step


def server_and_local_step(
    alpha: Step | None, beta: Step, local_steps: int, t: int
) -> dict[str, float]:
    """Return α and β of round ``t``; if ``alpha`` is None, α = βK with K = ``local_steps``."""
    local = step_at(beta, t)
    return {"alpha": local * local_steps if alpha is None else step_at(alpha, t), "beta": local}


def largest(step: Step, rounds: int) -> float:
    """Return the largest value of a step size in the first ``rounds`` rounds."""
    return max(step(t) for t in range(rounds)) if isinstance(step, Schedule) else step


def require_local_steps(local_steps: int) -> None:
    """Raise a ``FedcanonError`` if the number of local steps is below 1."""
    if local_steps < 1:
        raise FedcanonError(f"local_steps must be at least 1, not {local_steps}.")


def require_step(what: str, step: Step) -> None:
    """Raise a ``FedcanonError`` if a step size is not positive and finite in single precision.

    ``what`` names the step size in the message.
    """
    if not isinstance(step, Schedule) and not 0 < step < 3e38:
        raise FedcanonError(f"{what} must be a positive, finite number, not {step:g}.")


def require_fraction(what: str, number: float) -> None:
    """Raise a ``FedcanonError`` if a number is not at least 0 and below 1.

    ``what`` names the number in the message.
    """
    if not 0 <= number < 1:
        raise FedcanonError(f"{what} must be at least 0 and below 1, not {number:g}.")


@dataclass(frozen=True)
class StepDecay(Schedule):
    """A step size that falls by a factor every so many rounds: start · factor^⌊t / every⌋.

    Examples:
        >>> beta = StepDecay(0.1, factor=0.5, every=10)
        >>> [beta(t) for t in (0, 9, 10, 20)]
        [0.1, 0.1, 0.05, 0.025]
    """

    start: float
    factor: float = 0.1
    every: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.factor <= 1 or self.every < 1:
            raise FedcanonError("a step schedule needs 0 < factor ≤ 1 and every ≥ 1.")

    def __call__(self, t: int) -> float:
        return self.start * self.factor ** (t // self.every)


@dataclass(frozen=True)
class Cosine(Schedule):
    """A step size that falls from start to floor · start along half a cosine, and then stays there.

    start · (floor + (1 − floor) · (1 + cos(π · min(t / rounds, 1))) / 2).

    Examples:
        >>> beta = Cosine(1.0, rounds=100)
        >>> [round(beta(t), 3) for t in (0, 50, 100, 200)]
        [1.0, 0.505, 0.01, 0.01]
    """

    start: float
    rounds: int
    floor: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds < 1 or not 0 < self.floor <= 1:
            raise FedcanonError("a cosine schedule needs rounds ≥ 1 and 0 < floor ≤ 1.")

    def __call__(self, t: int) -> float:
        fall = (1 + math.cos(math.pi * min(t / self.rounds, 1.0))) / 2
        return self.start * (self.floor + (1 - self.floor) * fall)


@dataclass(frozen=True)
class InverseTime(Schedule):
    """A step size that falls like 1/t: start / (1 + t / period).

    Examples:
        >>> beta = InverseTime(0.1, period=20)
        >>> [beta(t) for t in (0, 20, 60)]
        [0.1, 0.05, 0.025]
    """

    start: float
    period: float = 20.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_step("an inverse-time schedule's period", self.period)

    def __call__(self, t: int) -> float:
        return self.start / (1 + t / self.period)


SCHEDULES: dict[str, type[Schedule]] = {
    "step": StepDecay,
    "cosine": Cosine,
    "inverse": InverseTime,
}
