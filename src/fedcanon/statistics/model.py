"""What a site must know to measure a model on its rows."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcanon.errors import FedcanonError
from fedcanon.importing import is_import_path
from fedcanon.layout import Layout
from fedcanon.objectives.cox import Cox
from fedcanon.objectives.families import FAMILIES, Family
from fedcanon.objectives.linear import LinearObjective
from fedcanon.objectives.multinomial import Multinomial
from fedcanon.randomness import Purpose, generator
from fedcanon.runs.named import make_family
from fedcanon.tables.recipe import Recipe
from fedcanon.tables.site import SiteTable

BINOMIAL, COX, MULTINOMIAL = "binomial", "cox", "multinomial"

NAMES = (*FAMILIES, MULTINOMIAL, COX)
"""All families."""

Objective = LinearObjective | Multinomial


def require_family(name: str, event: str | None) -> None:
    """Refuse what is no family, a Cox model without a column of events, and others with one.

    Args:
        name: The name of a family, or package.module:Name.
        event: The column that says whether the event has happened.
    """
    if not isinstance(name, str) or (name not in NAMES and not is_import_path(name)):
        raise FedcanonError(
            f"there is no family '{name}': use one of {', '.join(NAMES)}, or your own as "
            "package.module:Name."
        )
    if (event is not None) != (name == COX):
        raise FedcanonError('the family "cox" needs a column event, and no other has one.')


@dataclass(frozen=True)
class Rows:
    """Some of the rows of every site, which each site finds itself.

    Args:
        parts: The rows of each site are divided at random into so many parts.
        part: The part that is meant, counted from 0.
        draw: Distinguishes several divisions.
        seed: Decides the divisions.
        site: If there is a name, all rows of this site are meant instead, and none of others.
        rest: Whether all other rows are meant instead.
    """

    parts: int = 1
    part: int = 0
    draw: int = 0
    seed: int = 0
    site: str = ""
    rest: bool = False

    def of(self, name: str, count: int) -> NDArray[np.bool_]:
        """Tell which of a site's rows are meant."""
        if self.site:
            chosen = np.full(count, name == self.site)
        else:
            rng = generator(self.seed, Purpose.FOLDS, self.draw, zlib.crc32(name.encode()))
            chosen = rng.permutation(count) % self.parts == self.part
        return ~chosen if self.rest else chosen


ALL = Rows()
"""All rows of all sites."""


@dataclass(frozen=True)
class Model:
    """Everything about a model but its numbers.

    Its vector has the weights of the columns, then those of columns that are free of the penalty,
    then the intercept, which a Cox model does not have. With several classes each of these three
    has an entry for every class, class by class.

    Args:
        recipe: How columns are prepared. Those that are free come last.
        response: The column to be explained; for "cox" the time.
        family: A name of ``FAMILIES``, "multinomial" or "cox", or package.module:Name of a class
            that is derived from ``Family``.
        options: Parameters of the family.
        event: For "cox", the column that says whether the event has happened.
        weights: The column with the weights of rows.
        offset: The column with what is added to the score.
        free: The columns that are not penalised.
        classes: The levels of the response, if it has classes.
        class_weights: The weight of each class, by which the weights of rows are multiplied.
    """

    recipe: Recipe
    response: str
    family: str
    options: tuple[tuple[str, float | str], ...] = ()
    event: str | None = None
    weights: str | None = None
    offset: str | None = None
    free: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    class_weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        require_family(self.family, self.event)
        self._require_options()

    def _require_options(self) -> None:
        """Refuse options that no family has; each ``Family`` looks at its own."""
        if any(name == "name" for name, _ in self.options):
            raise FedcanonError("the name of a family is no option of it: use family.")
        known = {COX: {"ties"}, MULTINOMIAL: set[str]()}.get(self.family)
        unknown = set() if known is None else {name for name, _ in self.options} - known
        if self.family == COX and any(name.startswith("strat") for name in unknown):
            raise FedcanonError(
                "a Cox model over sites is always stratified by site, each with its own baseline "
                "hazard: the likelihood of pooled rows is no sum over sites, since every risk set "
                "needs the rows of all."
            )
        for name in sorted(unknown):
            raise FedcanonError(f"the family {self.family} has no option '{name}'.")

    @property
    def has_intercept(self) -> bool:
        """Whether there is an intercept, which the baseline hazard of Cox's model contains."""
        return self.family != COX

    @property
    def outputs(self) -> int:
        """How many scores a row has: one for each class of a multinomial model, else one."""
        return len(self.classes) if self.family == MULTINOMIAL else 1

    @property
    def unpenalised(self) -> int:
        """How many of the prepared columns are free."""
        return sum(name in self.free for name in self.recipe.variables)

    @property
    def penalised(self) -> int:
        """How many of the prepared columns are penalised."""
        return len(self.recipe.columns) - self.unpenalised

    @property
    def size(self) -> int:
        """The length of the vector."""
        return self.outputs * (len(self.recipe.columns) + self.has_intercept)

    @property
    def has_dispersion(self) -> bool:
        """Whether the variance has a factor that is estimated beside the model."""
        return self.family not in (COX, MULTINOMIAL) and self.make_family().has_dispersion

    def make_family(self) -> Family:
        """Return the family with its options."""
        return make_family({**dict(self.options), "name": self.family})

    @property
    def layout(self) -> Layout:
        """The parts of the vector; only ``weight`` is penalised."""
        parts: list[tuple[str, tuple[int, ...]]] = [("weight", (self.outputs, self.penalised))]
        parts += [("free", (self.outputs * self.unpenalised,))] if self.unpenalised else []
        return Layout.of([*parts, ("bias", (self.outputs,))] if self.has_intercept else parts)

    def objective(self, site: SiteTable, features: NDArray[np.float64]) -> Objective:
        """Return the loss on the rows of a site.

        Args:
            site: The site, or a part of its rows.
            features: The prepared columns of these rows.

        Raises:
            FedcanonError: A response is missing or cannot be; the site is named.
        """
        try:
            return self._objective(site, features)
        except FedcanonError as error:
            if site.name in str(error):
                raise
            raise FedcanonError(f"the site {site.name}: {error}") from None

    def _objective(self, site: SiteTable, features: NDArray[np.float64]) -> Objective:
        weights = None if self.weights is None else site.complete(self.weights)
        if self.family == COX:
            assert self.event is not None
            times, events = site.complete(self.response), site.complete(self.event)
            ties = dict(self.options).get("ties", "efron")
            return Cox(features, times, events, ties=ties, free=self.unpenalised)  # type: ignore[arg-type]
        if self.classes:
            labels = self._labels(site)
            if self.class_weights:
                own = np.asarray(self.class_weights)[labels]
                weights = own if weights is None else weights * own
            if self.family == MULTINOMIAL:
                return Multinomial(
                    features, labels, len(self.classes), weights=weights, free=self.unpenalised
                )
            response = labels.astype(np.float64)
        else:
            response = site.complete(self.response)
        return LinearObjective(
            features,
            response,
            self.make_family(),
            weights=weights,
            offset=None if self.offset is None else site.complete(self.offset),
            free=self.unpenalised,
        )

    def _labels(self, site: SiteTable) -> NDArray[np.intp]:
        """Return the number of each row's class."""
        found = site.complete_texts(self.response)
        numbers: Mapping[str, int] = {level: k for k, level in enumerate(self.classes)}
        if any(text not in numbers for text in found):
            raise FedcanonError(
                f"the column '{self.response}' of the site {site.name} has a value that is none of "
                f"{', '.join(self.classes)}, which are those with enough rows to be named."
            )
        return np.array([numbers[text] for text in found], dtype=np.intp)

    def class_counts(self, site: SiteTable) -> NDArray[np.float64]:
        """Count the rows of each class at a site."""
        counts = np.bincount(self._labels(site), minlength=len(self.classes))
        return counts.astype(np.float64)
