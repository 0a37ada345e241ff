"""What the estimators over the statistics of sites share: tables, the choice of κ, coefficients."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from fedcanon.data.own.tables import warn_of_new
from fedcanon.errors import FedcanonError
from fedcanon.estimators.private import read_privacy, train_privately
from fedcanon.estimators.problems import (
    InvalidDataError,
    require_kappa,
    rows_of_clients,
)
from fedcanon.penalties import Penalty
from fedcanon.privacy import Privacy
from fedcanon.statistics.choosing import Path, Validations, choose, folds_of
from fedcanon.statistics.model import Model, Rows
from fedcanon.statistics.private import study_as_it_is
from fedcanon.statistics.site import StudySite
from fedcanon.statistics.solving import Solution
from fedcanon.statistics.study import Question, Study, begin_study
from fedcanon.tables.preparing import Missing, Plan
from fedcanon.tables.recipe import OTHER, Category, texts
from fedcanon.tables.site import NO_GUARDS, SiteTable
from fedcanon.tables.sites import LocalSites

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]


@dataclass(eq=False, repr=False, kw_only=True)
class OverSites(BaseEstimator):
    """A sparse model of responses over the tables of sites: f + h at its minimum.

    Columns are prepared alike at all sites, from sums over them: missing values are filled,
    categories become columns of zeros and ones, and all are scaled to the mean 0 and the deviation
    1, on which the penalty h acts. Coefficients are on the scale of the given columns again.

    Args:
        penalty: h, by its name in ``fedcanon list penalties`` if it has a ``kappa``, or as a
            dictionary with the name and its parameters; None is no penalty. With ``{"name":
            "group_lasso", "groups": "variables"}`` all columns that come from one column of X are
            in the model together. An elastic net has one κ and an ``l1_ratio``, and MCP and SCAD
            have the form in which κ is the λ of ncvreg; see ``Study.penalty``.
        kappa: κ. None chooses it among 50 values, from the smallest at which all coefficients are 0
            down to a thousandth of it.
        choose: How κ is chosen. By cross-validation: "1se", the largest whose deviance is within
            one standard error of the best, or "min", the best. Without: "bic" or "ebic", the
            (extended) Bayesian information criterion.
        cv: The number of folds into which the rows of every site are divided.
        leave_one_site_out: Whether cross-validation leaves out one site after the other instead.
        free: The columns that are not penalised.
        categories: The columns that are categories although they hold numbers.
        missing: What stands for missing values, by column: "mean", "median" or a number for
            numbers; "most_frequent" or a level for categories. The default is "mean" and
            "most_frequent".
        indicators: The columns that get another column, which says what is missing.
        logs: The columns of which the logarithm is taken.
        splines: The number of knots, from 3 to 7, of columns that become splines.
        minimum_count: Rows that a level of a category must have; rarer ones become "other".
        random_state: Seed of the folds.
        privacy: None, or a dictionary such as ``{"epsilon": 3}``, with which the model is
            differentially private: it hides whether a record was among the rows, and nothing else
            is told of them. ``PrivacySettings`` has its keys and their defaults. Columns are then
            used as they are: numbers, none missing, which the user has scaled by public numbers to
            a deviation of about 1. κ must be given. The model is trained by FedCanon+ from 0, with
            βK = 1 and α = βK. Names of classes count as public.

    Attributes:
        columns_: The names of the prepared columns, such as "age" and "smoker = yes".
        kappa_: κ; None if the penalty has none.
        study_: The ``Study``: the prepared columns, and the sites. A pickle has no rows of them.
        solution_: The model as the study has it.
        path_: The models for all κ, if κ was chosen.
        validation_: The deviances of rows that were left out, if it was cross-validated.
        n_iter_: The rounds in which the sites were asked for the model.
        privacy_: The guarantee, ``RecordPrivacy`` or ``ClientPrivacy``; None without privacy.
        epsilon_: The ε that was spent; None without privacy.
        n_features_in_: The number of columns of X.
        feature_names_in_: Their names, if they are strings; otherwise they are x0, x1, …
    """

    penalty: str | Mapping[str, Any] | None = "l1"
    kappa: float | None = None
    choose: str = "1se"
    cv: int = 5
    leave_one_site_out: bool = False
    free: Sequence[str] = ()
    categories: Sequence[str] = ()
    missing: Mapping[str, Missing] | None = None
    indicators: Sequence[str] = ()
    logs: Sequence[str] = ()
    splines: Mapping[str, int] | None = None
    minimum_count: int = 10
    random_state: int | np.random.RandomState | None = 0
    privacy: Mapping[str, Any] | None = None

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()  # type: ignore[no-untyped-call]
        tags.target_tags.required = True
        tags.input_tags.allow_nan = self.privacy is None
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle holds: not the rows of the sites, which stay where they are."""
        state = dict(super().__getstate__())  # type: ignore[no-untyped-call]
        if "study_" in state:
            state["study_"] = replace(state["study_"], sites=LocalSites([]))
        return state

    def summary(self, *, level: float = 0.95) -> pd.DataFrame:
        """Return a table of coefficients on the scale of the columns of X.

        Beside the penalised coefficients it has those without penalty on the selected columns, with
        standard errors, p-values and intervals, which are conditional on the selection. Where there
        are none, the table's ``attrs["refit"]`` says why.

        Args:
            level: The level of the intervals.

        Raises:
            FedcanonError: The model is private, or was pickled and has no rows any more.
        """
        check_is_fitted(self)
        if self.privacy_ is not None:
            raise FedcanonError(
                "a private model has no standard errors, because exact sums over the rows would be "
                "needed for them: see coef_ and intercept_."
            )
        if not self.study_.sites.names:
            raise FedcanonError(
                "a model from a pickle does not have the rows that a summary needs: call summary() "
                "before, and keep the table."
            )
        return self.study_.summary(self.solution_, level=level)

    def _table(self, X: Any, *, reset: bool) -> pd.DataFrame:
        """Return X as a table whose columns are named as the study names them."""
        import pandas as pd

        framed = isinstance(X, pd.DataFrame)
        checks: dict[str, Any] = {
            "dtype": np.float64,
            "ensure_all_finite": "allow-nan",
            "ensure_min_samples": 2 if reset else 1,
        }
        try:
            rows = validate_data(
                self, X, reset=reset, **({"skip_check_array": True} if framed else checks)
            )
        except ValueError as error:
            raise InvalidDataError(str(error)) from None
        table = pd.DataFrame(rows).set_axis(self._names, axis=1).reset_index(drop=True)
        if (self.privacy if reset else self.privacy_) is not None:
            _require_numbers(table)
        return table

    @property
    def _names(self) -> list[str]:
        """The names of the columns of X."""
        if hasattr(self, "feature_names_in_"):
            return [str(name) for name in self.feature_names_in_]
        return [f"x{k}" for k in range(self.n_features_in_)]  # type: ignore[attr-defined]

    @property
    def _unpenalised(self) -> bool:
        return self.penalty is None or set(self._names) <= set(self.free)

    @property
    def _plan(self) -> Plan:
        return Plan(
            self._names,
            categories=self.categories,
            missing=self.missing or {},
            indicators=self.indicators,
            logs=self.logs,
            splines=self.splines or {},
            minimum_count=self.minimum_count,
        )

    def _solve(
        self,
        table: pd.DataFrame,
        names: Mapping[str, str],
        *,
        classes: int = 0,
        **question: Any,
    ) -> Array:
        """Fit the model, keep it, and return its intercepts on the scale of X.

        Args:
            table: The rows of all sites.
            names: Its columns beside those of X, by what ``Question`` calls them, and as "site" the
                one that names the site of each row.
            classes: How many classes the response has, which are 0, 1, …
            question: What else is asked.
        """
        roles: dict[str, Any] = {role: name for role, name in names.items() if role != "site"}
        roles["free"] = () if self._unpenalised else self.free
        asked = Question(plan=self._plan, **roles, **question)
        sites = _sites(table, names.get("site"))
        self.path_: Path | None = None
        self.validation_: Validations | None = None
        self.privacy_: Privacy | None = None
        self.epsilon_: float | None = None
        if self.privacy is None:
            self.study_ = begin_study(sites, asked)
            self.kappa_, found = self._chosen(self.study_)
        else:
            found = self._solve_privately(sites, asked, [str(k) for k in range(classes)])
        self.solution_ = replace(found, vector=_centred(self.study_.model, found.vector))
        self.n_iter_ = self.solution_.rounds
        if self.privacy is None and not self.solution_.converged:
            warnings.warn(
                f"the solution has not converged after {self.n_iter_} rounds: ‖G‖ is "
                f"{self.solution_.reached:.1e}, above {self.study_.tolerance:.1e}. Use a larger "
                "kappa, or fewer columns.",
                ConvergenceWarning,
                stacklevel=3,
            )
        model, order = self.study_.model, self._order(self.study_.model.recipe.variables)
        self.columns_ = [model.recipe.columns[k] for k in order]
        coefficients = self.study_.coefficients(self.solution_.vector)
        ends = [model.outputs * model.penalised, model.outputs * len(order)]
        penalised, free, intercepts = np.split(coefficients, ends)
        both = [part.reshape(model.outputs, -1) for part in (penalised, free)]
        weights: Array = np.concatenate(both, axis=1)[:, order]
        self.coef_ = weights if model.classes else weights[0]
        return intercepts

    def _solve_privately(
        self, sites: LocalSites, asked: Question, classes: Sequence[str]
    ) -> Solution:
        """Fit the model so that nothing but noisy sums is computed from the rows."""
        assert self.privacy is not None
        settings = read_privacy(self.privacy, len(self._names))
        for name in ("categories", "missing", "indicators", "logs", "splines"):
            if getattr(self, name):
                raise FedcanonError(
                    f"a private model uses columns as they are, because their preparation would "
                    f"need exact sums over the rows: leave out {name}."
                )
        study = study_as_it_is(sites, asked, classes)
        table = self._penalty_table(study)
        if "kappa" not in table and study.has_kappa(table):
            raise FedcanonError("κ cannot be chosen by data that are private: give kappa.")
        method = {"name": "fedcanon+", "local_steps": settings.local_steps}
        result, self.privacy_, self.epsilon_ = train_privately(
            study.problem(), study.penalty(table), settings, method
        )
        self.kappa_ = table.get("kappa")
        self.study_ = replace(study, sites=LocalSites([]))  # which keeps no rows
        rounds = result.last.round
        return Solution(result.vector, None, rounds, reached=math.nan, converged=False)

    def _chosen(self, study: Study) -> tuple[float | None, Solution]:
        """Return κ and the model; κ is None if the penalty has none."""
        table = self._penalty_table(study)
        if "kappa" in table or not study.has_kappa(table):
            return table.get("kappa"), study.fitted(study.penalty(table))
        return self._choose(study, study.penalties(table))

    def _penalty_table(self, study: Study) -> dict[str, Any]:
        """Return the penalty by its name and parameters, with κ if it is given."""
        if self._unpenalised:
            return {"name": "zero"}
        if isinstance(self.penalty, str):
            table: dict[str, Any] = {"name": self.penalty}
            if not study.has_kappa(table):
                require_kappa(self.penalty)
        elif isinstance(self.penalty, Mapping):
            table = dict(self.penalty)
        else:
            raise FedcanonError("penalty is a name, a dictionary with a name, or None.")
        if self.kappa is not None:
            table["kappa"] = float(self.kappa)
        return table

    def _choose(
        self, study: Study, penalty_at: Callable[[float], Penalty]
    ) -> tuple[float, Solution]:
        """Follow a path, and return κ and the model of the place that is chosen."""
        if self.choose not in ("1se", "min", "bic", "ebic"):
            raise FedcanonError(f'choose is "1se", "min", "bic" or "ebic", not {self.choose!r}.')
        folds = self._folds(study) if self.choose in ("1se", "min") else []
        found = choose(study, penalty_at, self.choose, folds)  # type: ignore[arg-type]
        self.path_, self.validation_ = found.path, found.validations
        return found.kappa, found.solution

    def _folds(self, study: Study) -> list[Rows]:
        if self.leave_one_site_out:
            return folds_of(study, 0, "sites")
        if not isinstance(self.cv, int | np.integer):
            raise FedcanonError(f"cv is a number of folds, not {self.cv!r:.40}.")
        assert isinstance(study.sites, LocalSites)
        if all(len(site.table) < self.cv for site in study.sites.tables):
            raise InvalidDataError(f"no site has a row for each of {self.cv} folds: use fewer.")
        return folds_of(study, self.cv, "rows", self._seed)

    @property
    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _order(self, variables: Sequence[str]) -> list[int]:
        """Return the places of columns in the order of X; the study has free ones last."""
        places = {name: k for k, name in enumerate(self._names)}
        return sorted(range(len(variables)), key=lambda k: places[variables[k]])

    def _scores(self, X: Any) -> Array:
        """Return the scores of rows without intercepts, a column for each output."""
        check_is_fitted(self)
        site, parts = (
            SiteTable("X", self._table(X, reset=False), NO_GUARDS),
            self.study_.model.recipe.parts,
        )
        columns = site.plain([parts[k] for k in self._order([part.name for part in parts])])
        for part in parts:
            if isinstance(part, Category) and OTHER not in (
                known := {part.reference, *part.levels}
            ):
                values = texts(site.table[part.name].dropna())
                warn_of_new(part.name, values, known, f"which counts as {part.reference!r}")
        scores: Array = columns @ np.atleast_2d(self.coef_).T
        return scores


def _require_numbers(table: pd.DataFrame) -> None:
    """Refuse columns that are not numbers, or have missing ones, which a private model needs."""
    from pandas.api import types

    for name, values in table.items():
        if not (
            types.is_numeric_dtype(values)
            and np.isfinite(values.to_numpy("float64", na_value=np.nan)).all()
        ):
            raise InvalidDataError(
                f"a private model uses columns as they are, but '{name}' has values that are "
                "missing or no numbers: fill, encode and scale it by public numbers, to a "
                "deviation of about 1."
            )


def _centred(model: Model, vector: Tensor) -> Tensor:
    """Return the same model of classes, with the mean 0 over classes where nothing is penalised.

    Probabilities do not change if the scores of all classes are shifted alike, so that intercepts
    and coefficients of free columns are known only up to such a shift.
    """
    if model.outputs == 1:
        return vector
    centred = vector.clone()
    for slot in list(model.layout)[1:]:
        part = slot.view(centred).view(model.outputs, -1)
        part -= part.mean(0)
    return centred


def _sites(table: pd.DataFrame, column: str | None) -> LocalSites:
    """Return the sites that a column names; None is one site."""
    if column is None:
        return LocalSites([StudySite("X", table, NO_GUARDS)])
    clients = rows_of_clients(table[column], table)
    rows = {str(table[column].iloc[own[0]]): own for own in clients}
    if len(rows) < len(clients):
        raise InvalidDataError("two groups have the same name as text: give them other names.")
    return LocalSites([StudySite(name, table.iloc[own], NO_GUARDS) for name, own in rows.items()])


def with_columns(
    table: pd.DataFrame, given: Mapping[str, NDArray[Any] | None]
) -> tuple[pd.DataFrame, dict[str, str]]:
    """Put further columns into a table; those that are None are left out.

    Returns:
        The table, and the names of the new columns, which no column of the table had.
    """
    names: dict[str, str] = {}
    for role, values in given.items():
        if values is not None:
            names[role] = role
            while names[role] in table.columns:
                names[role] += "_"
            table = table.assign(**{names[role]: values})
    return table, names


def numbers(values: Any, name: str, samples: int) -> Array:
    """Return one finite number for each sample.

    Raises:
        ValueError: There are more, fewer, or others.
    """
    found: Array = check_array(values, ensure_2d=False, dtype=np.float64, input_name=name)
    if found.shape != (samples,):
        raise InvalidDataError(
            f"{name} needs a number for each of {samples} samples, not the shape {found.shape}."
        )
    return found


def optional_numbers(values: Any, name: str, samples: int) -> Array | None:
    """Return one finite number for each sample, or None if there are none."""
    return None if values is None else numbers(values, name, samples)
