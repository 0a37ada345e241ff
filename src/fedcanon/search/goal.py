"""What makes one run of a sweep better than another."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedcanon.errors import FedcanonError


@dataclass(frozen=True)
class Goal:
    """A measure at the end of a run that is to be small, or large if ``maximise`` is set.

    Args:
        measure: its name in the history, such as "objective" or "accuracy".
        maximise: whether larger values are better.
    """

    measure: str = "objective"
    maximise: bool = False

    def of(self, measures: Mapping[str, Any]) -> float:
        """The value of the measure among all measures of a run.

        Raises:
            FedcanonError: it was not measured, or is not finite.
        """
        value = measures.get(self.measure)
        if value is None:
            raise FedcanonError(
                f"the run has not measured {self.measure}: use another measure, or turn this one "
                "on under [evaluate]."
            )
        if not math.isfinite(value):
            raise FedcanonError(f"{self.measure} is {value} at the end of the run.")
        return float(value)
