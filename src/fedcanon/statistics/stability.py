"""How stable a selection is: how often each column is selected from half of the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcanon.errors import FedcanonError
from fedcanon.penalties import Penalty
from fedcanon.randomness import Purpose, generator
from fedcanon.statistics.choosing import follow_path, without_rows
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
    table: Mapping[str, Any],
    kappas: Array,
    *,
    subsamples: int = 50,
    seed: int = 0,
    watch: Callable[[], object] = lambda: None,
) -> Stability:
    """Select columns from random halves of every site's rows.

    Args:
        study: The study.
        table: The penalty, without its kappa.
        kappas: The values of κ of the path; the smallest decides how much is selected.
        subsamples: How many halves are drawn.
        seed: Decides them.
        watch: Is called after each model.
    """

    def penalty_at(kappa: float) -> Penalty:
        return study.penalty({**table, "kappa": kappa})

    count = sum(map(len, study.groups))
    counts, selected = np.zeros(count), 0.0
    for k in range(subsamples):
        left_out = {
            s: generator(seed, Purpose.FOLDS, 1 + k, s).permutation(len(site.table))[::2]
            for s, site in enumerate(study.sites)
        }
        half = without_rows(study, left_out)
        path = follow_path(half, penalty_at, kappas, watch)
        chosen = np.any([vector.numpy()[:count] != 0 for vector in path.vectors], axis=0)
        counts += chosen
        selected += float(chosen.sum())
    return Stability(study.recipe.columns[:count], counts / subsamples, selected / subsamples)
