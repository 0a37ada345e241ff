"""What makes one run of a sweep better than another."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedcanon.errors import FedcanonError


@dataclass(frozen=True)
class Goal:
    """What a sweep looks for: a measure at the end of a run that is small or large.

    Args:
        measure: The name of the measure, a column of the history.
        maximise: Whether it should be large.
    """

    measure: str = "objective"
    maximise: bool = False

    def of(self, measures: Mapping[str, Any]) -> float:
        """The value of the measure in a run.

        Args:
            measures: The measures at the end of the run.

        Raises:
            FedcanonError: The measure is not there, or is not finite.
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
