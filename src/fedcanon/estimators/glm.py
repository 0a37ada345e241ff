"""scikit-learn estimators of generalised linear models and of Cox's model over sites."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.metrics import accuracy_score
from sklearn.utils import (
    ClassifierTags,
    RegressorTags,
    Tags,
    assert_all_finite,
    check_array,
    check_consistent_length,
    column_or_1d,
    compute_sample_weight,
)
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from fedcanon.errors import FedcanonError
from fedcanon.estimators.over_sites import (
    Array,
    OverSites,
    numbers,
    optional_numbers,
    with_columns,
)
from fedcanon.estimators.problems import InvalidDataError, labels_of, rows_of_clients
from fedcanon.statistics.model import BINOMIAL, COX, MULTINOMIAL
from fedcanon.statistics.quality import concordant
from fedcanon.statistics.site import StudySite
from fedcanon.statistics.study import begin_study
from fedcanon.tables.preparing import Plan
from fedcanon.tables.site import NO_GUARDS
from fedcanon.tables.sites import LocalSites

if TYPE_CHECKING:
    import pandas as pd


def _has_classes(model: FederatedGLM) -> bool:
    return model.family in (BINOMIAL, MULTINOMIAL)


@dataclass(eq=False, repr=False)
class FederatedGLM(OverSites):
    """A sparse generalised linear model over sites.

    f is the mean loss over all rows, whichever site has them: their negative log-likelihood, given
    the scores η = xᵀw + b. It is a classifier if the family has classes, and a regressor otherwise.
    ``OverSites`` says what the other parameters and attributes mean.

    Args:
        family: "gaussian", "binomial", "multinomial", "poisson", "gamma", "negative_binomial" or
            "huber".
        options: Parameters of the family, such as ``{"dispersion": 0.5}``.
        class_weight: "balanced" gives all classes the same weight in all, however many rows they
            have; a dictionary has the weight of each class.

    Attributes:
        coef_: Coefficients on the scale of X, one for each of ``columns_``; 1 × columns for the
            family binomial, classes × columns for multinomial.
        intercept_: The intercept; an array if there are classes.
        classes_: The labels, if the family has classes.
    """

    family: str = "gaussian"
    _: KW_ONLY
    options: Mapping[str, Any] | None = None
    class_weight: str | Mapping[Any, float] | None = None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        if _has_classes(self):
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags(multi_class=self.family == MULTINOMIAL)
        else:
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
            tags.target_tags.positive_only = self.family in (
                "poisson",
                "gamma",
                "negative_binomial",
            )
        return tags

    def fit(
        self, X: Any, y: Any, groups: Any = None, *, sample_weight: Any = None, offset: Any = None
    ) -> Self:
        """Fit the model to rows that are spread over sites.

        Args:
            X: The columns that explain: a data frame, in which values may be missing and categories
                be texts, or an array of numbers.
            y: The response of each row.
            groups: The site of each row, by a number or a name of any kind. Without it all rows are
                one site's.
            sample_weight: The weight of each row. Rows with the weight 0 are left out.
            offset: What is added to the score of each row; for counts, the logarithm of exposure.

        Raises:
            FedcanonError: The parameters do not fit one another or the data.

        Warns:
            ConvergenceWarning: The rounds ended before the solution was exact.
            RuntimeWarning: The noise of privacy decides which weights are zero.
        """
        if self.family == COX:
            raise FedcanonError("times of events have an estimator of their own: FederatedCox.")
        if self.privacy is not None and not (self.class_weight is None and sample_weight is None):
            raise FedcanonError(
                "weights of records cannot be kept private, because they are divided by their sum, "
                "which depends on every record: leave out sample_weight and class_weight."
            )
        if self.class_weight not in (None, "balanced"):
            own = compute_sample_weight(self.class_weight, y)
            sample_weight = own if sample_weight is None else own * np.asarray(sample_weight)
        table, names = self._rows(X, y, groups, sample_weight, offset, reset=True)
        if "weights" in names:
            table = table[table[names["weights"]] != 0]
            if table.empty:
                raise InvalidDataError("all sample weights are zero: give some rows a weight.")
        if _has_classes(self):
            self.classes_, labels = labels_of(table[names["response"]].to_numpy())
            if self.family == BINOMIAL and len(self.classes_) > 2:
                raise InvalidDataError(
                    f"there are {len(self.classes_)} classes. Only binary classification is "
                    'supported by the family binomial: use family="multinomial".'
                )
            table = table.assign(**{names["response"]: labels})
        intercepts = self._solve(
            table,
            names,
            classes=len(self.classes_) if _has_classes(self) else 0,
            family=self.family,
            options=self.options or {},
            balanced=self.class_weight == "balanced",
        )
        self.intercept_ = intercepts if _has_classes(self) else float(intercepts[0])
        return self

    def _rows(
        self, X: Any, y: Any, groups: Any, sample_weight: Any, offset: Any, *, reset: bool
    ) -> tuple[pd.DataFrame, dict[str, str]]:
        """Return X as a table with further columns, and their names."""
        table = self._table(X, reset=reset)
        response, samples = column_or_1d(y, warn=True), len(table)
        check_consistent_length(table, response, groups)
        assert_all_finite(response, input_name="y")
        given = {
            "response": response if _has_classes(self) else numbers(response, "y", samples),
            "weights": optional_numbers(sample_weight, "sample_weight", samples),
            "offset": optional_numbers(offset, "offset", samples),
            "site": None if groups is None else column_or_1d(groups),
        }
        return with_columns(table, given)

    def predict(self, X: Any, *, offset: Any = None) -> NDArray[Any]:
        """Return the most probable class of each row, or the mean of its response.

        Args:
            X: The columns that explain.
            offset: What is added to the score of each row.

        Raises:
            FedcanonError: A column is missing, or a value cannot be.
        """
        if _has_classes(self):
            found = self._class_scores(X, offset).argmax(axis=1)
            labels: NDArray[Any] = self.classes_[found]
            return labels
        scores, model = self._offset_scores(X, offset)[:, 0], self.study_.model
        return model.make_family().means(scores)

    @available_if(_has_classes)  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any, *, offset: Any = None) -> Array:
        """Return a score of each row for each class; for two classes one, positive for the second.

        Args:
            X: The columns that explain.
            offset: What is added to the score of each row.
        """
        scores = self._class_scores(X, offset)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    @available_if(_has_classes)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any, *, offset: Any = None) -> Array:
        """Return the probability of each class, a row for each row of X.

        Args:
            X: The columns that explain.
            offset: What is added to the score of each row.
        """
        chances: Array = softmax(self._class_scores(X, offset), axis=1)
        return chances

    def _class_scores(self, X: Any, offset: Any) -> Array:
        """Return a score for each class; the first of two classes of a binomial model has 0."""
        scores = self._offset_scores(X, offset)
        if self.study_.model.outputs > 1:
            return scores
        return np.concatenate([np.zeros_like(scores), scores], axis=1)

    def _offset_scores(self, X: Any, offset: Any) -> Array:
        scores = self._scores(X) + self.intercept_
        own = optional_numbers(offset, "offset", len(scores))
        return scores if own is None else scores + own[:, None]

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, offset: Any = None) -> float:
        """Return the accuracy of classes, or D², the share of the deviance that is explained.

        D² is 1 − D/D₀, where D is the deviance of the responses, and D₀ that of the best model of
        them that has only an intercept. It is not defined, and NaN, if all responses are alike.
        """
        if _has_classes(self):
            found = self.predict(X, offset=offset)
            return float(accuracy_score(y, found, sample_weight=sample_weight))
        check_is_fitted(self)
        table, names = self._rows(X, y, None, sample_weight, offset, reset=False)
        site, study = StudySite("X", table, NO_GUARDS), self.study_
        used: dict[str, Any] = {"weights": None, "offset": None, **names}
        bare = replace(study.question, plan=Plan([]), free=(), **used)
        null = begin_study(LocalSites([site]), bare)
        most = site.deviance(null.model, null.null[0])
        own = site.deviance(replace(study.model, **used), self.solution_.vector)
        return 1 - own / most if most else math.nan

    def summary(self, *, level: float = 0.95) -> pd.DataFrame:
        table = super().summary(level=level)
        if self.family == MULTINOMIAL:
            table.index = table.index.map(self._labelled)
        return table

    def _labelled(self, name: str) -> str:
        """Return the name of an entry with the label of its class, where the study has a number."""
        number, _, column = name.partition(": ")
        return f"{self.classes_[int(number)]}: {column}"


@dataclass(eq=False, repr=False, kw_only=True)
class FederatedCox(OverSites):
    """Cox's proportional hazards with sparse coefficients over sites.

    f is the negative partial log-likelihood, **stratified by site**, divided by the number of rows:
    each site has its own baseline hazard, and the coefficients are common. There is no intercept.
    ``OverSites`` says what the other parameters and attributes mean.

    ``y`` has a time and an event for each row. It is a structured array as in scikit-survival, with
    the event (bool) first and the time second; or a data frame or an array with two columns, the
    time first and the event (0 or 1) second.

    Args:
        ties: How events at the same time are treated: "efron", or "breslow".

    Attributes:
        coef_: Coefficients on the scale of X, one for each of ``columns_``.
    """

    ties: str = "efron"

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Fit the model to rows that are spread over sites.

        Args:
            X: The columns that explain: a data frame, in which values may be missing and categories
                be texts, or an array of numbers.
            y: The event and the time of each row; see above.
            groups: The site of each row, by a number or a name of any kind. Without it all rows are
                one site's.

        Raises:
            FedcanonError: The parameters do not fit one another or the data.

        Warns:
            ConvergenceWarning: The rounds ended before the solution was exact.
        """
        if self.privacy is not None:
            raise FedcanonError(
                "a Cox model cannot be private, because it has no loss of single records: in its "
                "partial likelihood every record is in the risk sets of others."
            )
        table = self._table(X, reset=True)
        times, events = _times_and_events(y, len(table))
        check_consistent_length(table, groups)
        site = None if groups is None else column_or_1d(groups)
        given = {"response": times, "event": events, "site": site}
        self._solve(*with_columns(table, given), family=COX, options={"ties": self.ties})
        return self

    def predict(self, X: Any) -> Array:
        """Return the score xᵀw of each row: the logarithm of its relative hazard."""
        return self._scores(X)[:, 0]

    def score(self, X: Any, y: Any, groups: Any = None) -> float:
        """Return the concordance: the share of pairs in which the higher score has the event first.

        Args:
            X: The columns that explain.
            y: The event and the time of each row.
            groups: The site of each row; pairs are within sites. Without it all rows are one's.
        """
        scores = self.predict(X)
        times, events = _times_and_events(y, len(scores))
        counts = [
            concordant(times[rows], events[rows] > 0, scores[rows])
            for rows in rows_of_clients(groups, scores)
        ]
        agree, comparable = np.sum(counts, axis=0)
        return float(agree / comparable) if comparable else math.nan


def _times_and_events(y: Any, samples: int) -> tuple[Array, Array]:
    """Return the time of each row, and 1 if it is that of an event, otherwise 0."""
    fields = getattr(getattr(y, "dtype", None), "names", None)
    if fields and len(fields) == 2:
        times, events = y[fields[1]], y[fields[0]]
    else:
        columns = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
        if columns.ndim != 2 or columns.shape[1] != 2:
            raise InvalidDataError(
                "y needs a time and an event for each row: two columns in this order, or a "
                "structured array with the event first and the time second."
            )
        times, events = columns.T
    return numbers(times, "the times of y", samples), numbers(events, "the events of y", samples)
