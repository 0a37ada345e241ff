"""Verdicts by mean and deviation over seeds, with constant and with the best known steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from fedcanon.paper.methods import DAMPED
from fedcanon.paper.outcome import Claim, Finding
from fedcanon.paper.trials import SAME_ACCURACY
from fedcanon.paper.tuning import FLOOR, Results, Shape, Trained

ERRORS = 2
"""So many standard errors a difference must exceed."""

RULES = (
    f"cosine: steps fall by half a cosine over the training, in trials over the trial, to "
    f"{FLOOR:.0%}. The best known steps are, for each method, constant or falling, by the "
    f"lower validation loss; in place of FedCanon stands the {DAMPED}, with its automatic gain "
    "and without acceleration.",
    f"± is the standard deviation over seeds. One method is ahead of another if the difference of "
    f"their means exceeds {100 * SAME_ACCURACY:.0f} point and {ERRORS} standard errors of that "
    "difference, √(s₁²/n₁ + s₂²/n₂) for deviations s over n seeds, which is the ± of a difference; "
    "otherwise they are level.",
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
    def shown(self) -> str:
        """Difference and error in points, and which of both diverged."""
        if self.ours.diverged:
            return "diverged"
        points = f"{100 * self.difference:+.1f}±{100 * self.error:.1f}"
        return f"{points} (the other diverged)" if self.theirs.diverged else points


def widest(found: Mapping[str, Trained], methods: Iterable[str]) -> Margin:
    """The largest margin by which a method is ahead of another; if none is, the largest of all.

    So the methods are level if, and only if, this margin is no lead. The largest difference may be
    one of chance while a smaller one is not.
    """
    pairs = permutations((found[method] for method in methods), 2)
    return max((Margin(*pair) for pair in pairs), key=lambda pair: (pair.ahead, pair.difference))


def to_nearest(
    found: Mapping[str, Trained], ours: str, others: Iterable[str]
) -> tuple[str, Margin]:
    """The best of the others that ours is not ahead of, or of all others; and the margin to it.

    So ours is ahead of all if, and only if, it is ahead of this one.
    """
    margins = {method: Margin(found[ours], found[method]) for method in others}
    return min(margins.items(), key=lambda to: (to[1].ahead, to[1].difference))


def best_known(by_shape: Mapping[Shape, Results]) -> Results:
    """Every method with constant or with falling steps, whichever has the lower validation loss.

    Steps with which the training diverged, though its trials did not, come last.
    """
    constant = by_shape[Shape.constant]
    return {
        where: {
            method: min(
                (results[where][method] for results in by_shape.values()),
                key=lambda trained: (trained.diverged, trained.validation_loss),
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


def budget(trials: int, rounds: int, seeds: Sequence[int], what: str) -> str:
    """The note on how steps were chosen.

    Args:
        trials: How many points the grid of a method has.
        rounds: The length of a trial.
        seeds: The seeds of the trainings that follow.
        what: What has settings of its own, such as "partition".
    """
    return (
        f"every method has the same budget in every {what}: {trials} tuning trials of {rounds} "
        f"rounds for constant and {trials} for falling steps, and then {len(seeds)} seeds of the "
        "best of each. Where one of these diverges the next best steps are taken."
    )
