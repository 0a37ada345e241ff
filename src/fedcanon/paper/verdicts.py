"""Verdicts by mean and deviation over seeds, with constant and with the best known steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fedcanon.paper.methods import DAMPED
from fedcanon.paper.outcome import Claim, Finding
from fedcanon.paper.trials import SAME_ACCURACY
from fedcanon.paper.tuning import FLOOR, Results, Shape, Trained

ERRORS = 2
"""So many standard errors a difference must exceed."""

RULE = (
    f"± is the standard deviation over seeds. One method is ahead of another if the difference of "
    f"their means exceeds {100 * SAME_ACCURACY:.0f} point and {ERRORS} standard errors of that "
    "difference, √(s₁²/n₁ + s₂²/n₂) for deviations s over n seeds, which is the ± of a difference; "
    "otherwise they are level."
)
"""How verdicts are found, for the notes of an outcome."""


@dataclass(frozen=True)
class Margin:
    """By how much one method is more accurate than another, and the standard error of that."""

    ours: Trained
    theirs: Trained

    @property
    def difference(self) -> float:
        """The difference of the mean accuracies."""
        return self.ours.accuracy - self.theirs.accuracy

    @property
    def error(self) -> float:
        """The standard error of the difference."""
        both = (self.ours, self.theirs)
        return math.sqrt(sum(one.deviation**2 / len(one.trainings) for one in both))

    @property
    def ahead(self) -> bool:
        """Whether ours is ahead."""
        return self.difference > max(SAME_ACCURACY, ERRORS * self.error)

    @property
    def level(self) -> bool:
        """Whether neither is ahead."""
        return abs(self.difference) <= max(SAME_ACCURACY, ERRORS * self.error)

    @property
    def shown(self) -> str:
        """Difference and error in points, or that ours diverged."""
        if self.ours.diverged:
            return "diverged"
        return f"{100 * self.difference:+.1f}±{100 * self.error:.1f}"


def widest(found: Mapping[str, Trained], methods: Iterable[str]) -> Margin:
    """The margin between the most and the least accurate of some methods."""
    ordered = sorted((found[method] for method in methods), key=lambda one: one.accuracy)
    return Margin(ordered[-1], ordered[0])


def to_best(found: Mapping[str, Trained], ours: str, others: Iterable[str]) -> tuple[str, Margin]:
    """The most accurate of the others, and the margin to it."""
    best = max(others, key=lambda method: found[method].accuracy)
    return best, Margin(found[ours], found[best])


def best_known(by_shape: Mapping[Shape, Results]) -> Results:
    """Every method with constant or with falling steps, whichever has the lower validation loss."""
    constant = by_shape[Shape.constant]
    return {
        where: {
            method: min(
                (results[where][method] for results in by_shape.values()),
                key=lambda trained: trained.validation_loss,
            )
            for method in by_method
        }
        for where, by_method in constant.items()
    }


Judge = Callable[[Results, str], Finding]
"""Judges results; the second argument is the method that stands for FedCanon."""


def claim(paper: str, judge: Judge, constant: Results, best: Results | None) -> Claim:
    """A claim of the paper, judged for FedCanon with constant steps and for the best known, if any.

    The best known method is the damped FedCanon+.
    """
    found = judge(constant, "FedCanon")
    return Claim(paper, found.measured, found.agrees, judge(best, DAMPED) if best else None)


def protocol(trials: int, rounds: int, seeds: Sequence[int], what: str) -> list[str]:
    """The notes on how steps were chosen and verdicts found.

    Args:
        trials: How many points the grid of a method has.
        rounds: The length of a trial.
        seeds: The seeds of the trainings that follow.
        what: What has settings of its own, such as "partition".
    """
    return [
        f"every method has the same budget in every {what}: {trials} tuning trials of {rounds} "
        f"rounds for constant and {trials} for falling steps, and then {len(seeds)} seeds of the "
        "best of each. Where one of these diverges the next best steps are taken.",
        f"cosine: steps fall by half a cosine over the training, in trials over the trial, to "
        f"{FLOOR:.0%}. The best known steps are, for each method, constant or falling, by the "
        f"lower validation loss; in place of FedCanon stands the {DAMPED}, with its automatic gain "
        "and without acceleration.",
        RULE,
    ]
