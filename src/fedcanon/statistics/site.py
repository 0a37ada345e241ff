"""What a site tells of models on its rows: sums of values, gradients, Hessians and measures."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcanon.errors import FedcanonError
from fedcanon.expansion import expansion_length, pack_expansion
from fedcanon.objectives.linear import LinearObjective
from fedcanon.statistics.model import ALL, Model, Objective, Rows
from fedcanon.statistics.quality import measures, no_measures
from fedcanon.statistics.refit import refit_over
from fedcanon.tables.recipe import Recipe
from fedcanon.tables.site import Answer, SiteTable
from fedcanon.tables.sites import LocalSites
from fedcanon.units import GIB

Vector = Sequence[float]


@dataclass(frozen=True)
class StudySite(SiteTable):
    """A site that takes part in a study."""

    _kept: OrderedDict[tuple[Model, Rows], tuple[Objective | None, int]] = field(
        default_factory=OrderedDict, compare=False, repr=False
    )
    _prepared: dict[Recipe, NDArray[np.float64]] = field(
        default_factory=dict, compare=False, repr=False
    )

    @property
    def requests(self) -> Mapping[str, Callable[..., Answer]]:
        own: dict[str, Callable[..., Answer]] = {
            "class_counts": self.class_counts,
            "expansions": self.expansions,
            "information": self.information,
            "qualities": self.qualities,
            "own_fit": self.own_fit,
        }
        return {**super().requests, **own}

    def answer(self, what: str, sites: int, arguments: Mapping[str, object]) -> Answer:
        for rows in arguments.get("rows", ()):  # type: ignore[attr-defined]
            if rows.site:  # then not all sites are in the sum
                self.require_sites(_summed(rows, self.name, sites))
        return super().answer(what, sites, arguments)

    def class_counts(self, model: Model) -> Answer:
        """Count the rows of each class."""
        return {"counts": model.class_counts(self)}

    def expansions(
        self,
        model: Model,
        rows: Sequence[Rows],
        vectors: Sequence[Vector],
        support: Sequence[int] | None = None,
        *,
        penalised: bool = True,
    ) -> Answer:
        """Sum losses, gradients and Hessians over rows, for each pair of rows and a vector.

        Args:
            model: The model.
            rows: Which rows.
            vectors: The numbers of the model, for each of them.
            support: The entries of the vectors for which derivatives are wanted; None is all.
            penalised: Whether the model is fitted with a penalty.
        """
        places = torch.arange(model.size) if support is None else torch.tensor(list(support))
        for vector in vectors:
            used = {k for k, value in enumerate(vector) if value} | set(places.tolist())
            self._require_few(len(used), penalised=penalised)
        weights = np.zeros(len(rows))
        found = torch.zeros(len(rows), expansion_length(len(places)), dtype=torch.float64)
        for k, (own, vector) in enumerate(zip(rows, vectors, strict=True)):
            objective = self.objective(model, own)
            if objective is None:
                continue
            x = torch.as_tensor(vector, dtype=torch.float64)
            value, gradient = objective.value_and_gradient(x)
            hessian = objective.hessian(x)[places][:, places]
            weights[k] = objective.total_weight
            found[k] = weights[k] * pack_expansion(value, gradient[places], hessian)
        return {"weights": weights, "expansions": found.numpy()}

    def information(self, model: Model, vector: Vector, support: Sequence[int]) -> Answer:
        """Tell Fisher's information about some entries of a model, and Pearson's statistic.

        "scores" is Σ_j ω_j² g_j g_jᵀ over the gradients g_j of the rows, of weights ω_j.
        """
        self._require_few(len(support), penalised=False)
        objective = self.objective(model, ALL)
        if objective is None:
            nothing = np.zeros((len(support), len(support)))
            return {"rows": 0, "information": nothing, "scores": nothing, "pearson": 0.0}
        if not isinstance(objective, LinearObjective):
            raise FedcanonError("standard errors are for models with one response.")
        x, places = torch.as_tensor(vector, dtype=torch.float64), torch.tensor(list(support))
        return {
            "rows": objective.samples,
            "information": objective.information(x)[places][:, places].numpy(),
            "scores": objective.score_square(x)[places][:, places].numpy(),
            "pearson": objective.pearson(x) or 0.0,
        }

    def qualities(
        self, model: Model, rows: Sequence[Rows], vectors: Sequence[Vector], *, pairs: bool = True
    ) -> Answer:
        """Tell how good models are on rows, by numbers that add up over sites.

        Args:
            model: The model.
            rows: Which rows.
            vectors: The numbers of the model, for each of them.
            pairs: Whether pairs in order are counted for a Cox model, which takes long.
        """
        found: list[Answer] = []
        for own, vector in zip(rows, vectors, strict=True):
            objective = self.objective(model, own)
            x = torch.as_tensor(vector, dtype=torch.float64)
            found.append(
                no_measures() if objective is None else measures(objective, x, pairs=pairs)
            )
        return {name: np.array([one[name] for one in found]) for name in no_measures()}

    def own_fit(self, model: Model, support: Sequence[int]) -> Answer:
        """Fit a model without penalty on the site's rows alone.

        A site that is too small for it, or at which a column is constant, tells so: "fitted" is 0.
        """
        self.require_sites(1)
        alone = replace(self, guards=replace(self.guards, minimum_sites=1))
        try:
            found = refit_over(LocalSites([alone]), model, support)
        except FedcanonError:
            return {"fitted": 0}
        errors = np.sqrt(np.diag(found.covariance))
        return {"fitted": 1, "estimates": found.vector.numpy()[list(support)], "errors": errors}

    def deviance(self, model: Model, vector: Tensor) -> float:
        """Return the mean deviance of the rows, for the site itself."""
        objective = self.objective(model, ALL)
        assert objective is not None
        return objective.deviance(vector)

    def _require_few(self, parameters: int, *, penalised: bool) -> None:
        limit = self.guards.parameters_per_row * len(self.table)
        if parameters > limit and not (penalised and self.guards.penalised):
            raise self.refused(
                f"a model of {parameters} parameters is more than parameters_per_row = "
                f"{self.guards.parameters_per_row:g} allows for its {len(self.table)} rows"
            )

    def objective(self, model: Model, rows: Rows = ALL) -> Objective | None:
        """Return the loss on some rows, None if there are none, for use at the site itself.

        Those used last are kept.
        """
        key = (model, rows)
        if key not in self._kept:
            chosen = rows.of(self.name, len(self.table))
            if model.weights is not None:
                chosen &= self.complete(model.weights) != 0
            part = self.part(chosen)
            found = None
            if len(part):
                guards = replace(self.guards, minimum_rows=0)  # has been looked at
                features = self._features(model.recipe)[chosen]
                found = model.objective(SiteTable(self.name, part, guards), features)
            self._kept[key] = found, 8 * len(part) * (len(model.recipe.columns) + 2)
            while len(self._kept) > 1 and sum(size for _, size in self._kept.values()) > GIB:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key][0]

    def _features(self, recipe: Recipe) -> NDArray[np.float64]:
        """Return the prepared columns of all rows; those of one recipe are kept."""
        if recipe not in self._prepared:
            self._prepared.clear()
            self._prepared[recipe] = recipe.standardised(self.plain(recipe.parts))
        return self._prepared[recipe]


def _summed(rows: Rows, name: str, sites: int) -> int:
    """Return over how many sites an answer about rows is added up, if a site takes part."""
    if rows.site == name:  # by the difference to all rows, also if it is left out
        return 1
    return sites - 1 if rows.rest else sites
