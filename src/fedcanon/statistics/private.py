"""A study of columns as they are, for models of which sites tell nothing but noisy sums."""

from __future__ import annotations

from collections.abc import Sequence

from fedcanon.statistics.study import Question, Study, described, ordered
from fedcanon.tables.recipe import Number, Recipe
from fedcanon.tables.sites import LocalSites


def study_as_it_is(sites: LocalSites, question: Question, classes: Sequence[str]) -> Study:
    """Describe the model of a study without asking the sites anything.

    Columns hold numbers, of which none is missing. They are neither centred nor scaled.

    Args:
        sites: The sites.
        question: What is asked; its plan names the columns and nothing else.
        classes: The levels of the response, if it has classes.

    Raises:
        FedcanonError: The family has no such options.
    """
    names = ordered(question).columns
    parts = tuple(Number(name, fill=0.0) for name in names)
    recipe = Recipe(parts, means=(0.0,) * len(names), scales=(1.0,) * len(names))
    return Study(question, sites, described(question, recipe, classes))
