"""Notices that a run diverges, and keeps the last good model to go back to."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

PATIENCE = 5
"""Measurements in a row that must have lost half of the progress before a run goes back."""

MOST_RETURNS = 10
"""Returns to the last good model after which a run ends with an error."""


class Guard:
    """Watches φ = f + h, measured again and again, and keeps the model with the smallest φ.

    A run diverges if φ is not finite, exceeds twice its first value, or has lost half of the
    progress from its first to its smallest value in five measurements in a row.
    """

    def __init__(self) -> None:
        self._first, self._best, self._worse = math.inf, math.inf, 0
        self._model: Tensor | None = None
        self._buffers: Tensor | None = None
        self.returns = 0

    def diverges(self, objective: float, model: Tensor, buffers: Tensor) -> bool:
        """Tell whether the run diverges, from φ at its current model and statistics."""
        if self._model is None or objective < self._best:
            self._best, self._worse = objective, 0
            self._model, self._buffers = model.clone(), buffers.clone()
        if math.isinf(self._first):  # also where the start violates a constraint
            self._first = objective
        lost = objective > (self._first + self._best) / 2
        self._worse = self._worse + 1 if lost else 0
        far = not objective <= self._first + abs(self._first)
        return (far and not math.isinf(self._first)) or self._worse >= PATIENCE

    def go_back(self) -> tuple[Tensor, Tensor] | None:
        """Return the last good model and its statistics; None after too many returns."""
        if self._model is None or self._buffers is None or self.returns == MOST_RETURNS:
            return None
        self.returns, self._worse = self.returns + 1, 0
        return self._model, self._buffers

    @property
    def has_gained(self) -> bool:
        """Whether φ has fallen by a tenth: a network with dead units is hardly below its start."""
        return self._best <= self._first - 0.1 * abs(self._first)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must contain."""
        if self._model is None:
            return {}
        numbers = {"first": self._first, "best": self._best, "worse": self._worse}
        vectors = {"model": self._model, "buffers": self._buffers}
        return {**numbers, **vectors, "returns": self.returns}

    def load(self, state: dict[str, Any]) -> None:
        """Restore a state that ``state`` returned."""
        if state:
            self._first, self._best = float(state["first"]), float(state["best"])
            self._worse, self.returns = int(state["worse"]), int(state["returns"])
            self._model, self._buffers = state["model"], state["buffers"]
