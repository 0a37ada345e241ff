"""What a sweep looks for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedcanon.errors import FedcanonError


@dataclass(frozen=True)
class Goal:
    """A measure at the end of a run, and whether more of it is better."""

    measure: str = "objective"
    maximise: bool = False

    def of(self, measures: Mapping[str, Any]) -> float:
        """The measure's value among these; one that is not there or not finite is refused."""
        value = measures.get(self.measure)
        if value is None:
            raise FedcanonError(
                f"the run has not measured {self.measure}: look for another measure, or turn it "
                "on under [evaluate]."
            )
        if not math.isfinite(value):
            raise FedcanonError(f"{self.measure} is {value} at the end of the run.")
        return float(value)
