"""How stable a selection is: how often each column is selected from half of the rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcanon.errors import FedcanonError
from fedcanon.penalties import Penalty
from fedcanon.statistics.choosing import follow_paths
from fedcanon.statistics.model import Rows
from fedcanon.statistics.study import Study

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Stability:
    """The selections in many subsamples.

    Args:
        columns: The penalised columns.
        shares: The share of subsamples in which each column was selected at some κ of the path.
        mean_selected: How many columns were selected in a subsample, on average.
    """

    columns: list[str]
    shares: Array
    mean_selected: float

    def selected(self, share: float = 0.8) -> list[str]:
        """Return the columns that were selected in at least this share of subsamples."""
        return [c for c, s in zip(self.columns, self.shares, strict=True) if s >= share]

    def false_selections(self, share: float = 0.8) -> float:
        """Return a bound on the expected number of columns that are selected in vain.

        It is q²/((2·share − 1)p) for q selected columns of p in a subsample, if those that do not
        matter are alike (Meinshausen, Bühlmann 2010: "Stability selection").

        Raises:
            FedcanonError: The share is not above a half.
        """
        if not 0.5 < share <= 1:
            raise FedcanonError(f"the share must be above 0.5 and at most 1, not {share:g}.")
        return self.mean_selected**2 / ((2 * share - 1) * len(self.columns))


def stability(
    study: Study,
    penalty_at: Callable[[float], Penalty],
    kappas: Array,
    *,
    subsamples: int = 50,
    seed: int = 0,
    watch: Callable[[], object] = lambda: None,
) -> Stability:
    """Select columns from random halves of every site's rows.

    Args:
        study: The study.
        penalty_at: The penalty for a κ.
        kappas: The values of κ of the path; the smallest decides how much is selected.
        subsamples: How many halves are drawn.
        seed: Decides them.
        watch: Is called after each κ.
    """
    halves = [Rows(parts=2, draw=1 + k, seed=seed) for k in range(subsamples)]
    paths = follow_paths(study, penalty_at, kappas, halves, watch)
    count, outputs = study.model.penalised, study.model.outputs
    chosen = np.zeros((subsamples, count))
    for k, path in enumerate(paths):
        models = np.stack([vector.numpy()[: outputs * count] for vector in path.vectors])
        chosen[k] = (models.reshape(-1, count) != 0).any(axis=0)
    columns = study.model.recipe.columns[:count]
    return Stability(columns, chosen.mean(0), float(chosen.sum(1).mean()))
