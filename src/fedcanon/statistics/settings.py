"""The settings of a study, as a file or as options of a command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from fedcanon.errors import FedcanonError
from fedcanon.runs.config import Section
from fedcanon.statistics.choosing import Choice, Measure
from fedcanon.statistics.study import Question
from fedcanon.tables.preparing import Plan

Names = tuple[str, ...]


class StudySettings(Section):
    """What a study asks and how it chooses; all but the label has a default.

    Args:
        label: The column to be explained; for "cox" the time.
        family: How it is distributed.
        options: Parameters of the family.
        event: For "cox", the column that says whether the event has happened.
        weights: The column with the weights of rows.
        balanced: Whether classes have the same weight in all.
        offset: The column with what is added to the score.
        columns: The columns that explain; none are all others of the first site's table.
        free: Those that are not penalised.
        categories: Those that are categories although they hold numbers.
        logs: Those of which the logarithm is taken.
        splines: The number of knots of those that become splines.
        missing: What stands for missing values, by column.
        indicators: Those that get another column, which says what is missing.
        minimum_count: Rows that a level of a category must have.
        penalty: The penalty and its parameters; see ``Study.penalty``.
        kappa: κ; without it ``choose`` chooses.
        choose: By cross-validation the simplest model within one standard error ("1se") or the best
            ("min"), or the one with the smallest criterion ("bic", "ebic").
        measure: What cross-validation compares: the deviance, or the AUC or concordance.
        folds: How many parts the rows of each site are divided into.
        leave_one_site_out: Whether whole sites are left out instead.
        stability: The number of subsamples for stability selection; 0 leaves it out.
        level: The level of the intervals.
        seed: Decides folds and subsamples.
    """

    label: str
    family: str = "binomial"
    options: dict[str, float | str] = Field(default_factory=dict)
    event: str | None = None
    weights: str | None = None
    balanced: bool = False
    offset: str | None = None
    columns: Annotated[Names, Field(strict=False)] = ()
    free: Annotated[Names, Field(strict=False)] = ()
    categories: Annotated[Names, Field(strict=False)] = ()
    logs: Annotated[Names, Field(strict=False)] = ()
    splines: dict[str, int] = Field(default_factory=dict)
    missing: dict[str, float | str] = Field(default_factory=dict)
    indicators: Annotated[Names, Field(strict=False)] = ()
    minimum_count: Annotated[int, Field(ge=1)] = 10
    penalty: dict[str, Any] = Field(default_factory=lambda: {"name": "l1"})
    kappa: Annotated[float, Field(gt=0)] | None = None
    choose: Choice = "1se"
    measure: Measure = "deviance"
    folds: Annotated[int, Field(ge=2)] = 5
    leave_one_site_out: bool = False
    stability: Annotated[int, Field(ge=0, le=1000)] = 0
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95
    seed: Annotated[int, Field(ge=0)] = 0

    def question(self, available: Sequence[str] = ()) -> Question:
        """Return the question, given the columns of the tables.

        Raises:
            FedcanonError: The settings do not fit one another.
        """
        special = {self.label, self.event, self.weights, self.offset}
        columns = self.columns or [name for name in available if name not in special]
        if not columns:
            raise FedcanonError(f"the tables have no column beside '{self.label}' to explain it.")
        plan = Plan(
            columns,
            self.categories,
            self.missing,
            self.indicators,
            self.logs,
            self.splines,
            self.minimum_count,
        )
        return Question(
            self.label,
            plan,
            self.family,
            self.options,
            self.event,
            self.weights,
            self.balanced,
            self.offset,
            self.free,
        )
