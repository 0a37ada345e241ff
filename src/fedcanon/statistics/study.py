"""A study over sites: from their tables to a model, and from a model back to their columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from fedcanon.errors import FedcanonError
from fedcanon.objectives import Problem
from fedcanon.objectives.multinomial import places_of_weights
from fedcanon.penalties import PENALTIES, Penalty, Zero, with_our_names
from fedcanon.runs.named import make_penalty, penalty_parameters
from fedcanon.runs.steps import has_few_floats
from fedcanon.search.kappas import kappa_at, null_model
from fedcanon.statistics.model import ALL, BINOMIAL, COX, MULTINOMIAL, Model, Rows, require_family
from fedcanon.statistics.refit import Refit, refit_over, wald
from fedcanon.statistics.site import StudySite
from fedcanon.statistics.solving import (
    Expansions,
    Solution,
    Task,
    solve_by_fedcanon,
    solve_by_newton,
    solve_without_penalty,
)
from fedcanon.tables.preparing import Plan, levels, prepare
from fedcanon.tables.recipe import Recipe
from fedcanon.tables.sites import LocalSites, Sites, total
from fedcanon.threads import one_thread

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]

ELASTIC_NET = "elastic_net"

EVERYWHERE = "all sites"
"""What all sites together are called, which no site may be."""

TOLERANCE = 1e-8
"""Solutions have ‖G‖ below this part of ‖∇f‖ at the model without penalised columns."""

ROUNDING = 1e-11
"""A ‖G‖ that is small enough in any case, for a model of size 1."""


@dataclass(frozen=True)
class Question:
    """What a study asks.

    Args:
        response: The column to be explained; for "cox" the time of the event, or of the end of
            observation.
        plan: The columns that explain, and what is done to them.
        family: How the response is distributed: one of ``NAMES``, or package.module:Name.
        options: Parameters of the family, such as ``{"dispersion": 0.5}``, or ``{"ties":
            "breslow"}`` for "cox".
        event: For "cox", the column that says whether the event has happened.
        weights: The column with the weights of rows, in the preparation of columns as in the loss;
            None weighs all alike.
        balanced: Whether classes have the same weight in all, however many rows they have.
        offset: The column with what is added to the score; for counts, the logarithm of exposure.
        free: The columns that are not penalised.

    Raises:
        FedcanonError: There is no such family, or the parts do not fit one another.
    """

    response: str
    plan: Plan
    family: str = "gaussian"
    options: Mapping[str, Any] = field(default_factory=dict)
    event: str | None = None
    weights: str | None = None
    balanced: bool = False
    offset: str | None = None
    free: Sequence[str] = ()

    def __post_init__(self) -> None:
        require_family(self.family, self.event)
        if self.balanced and self.family not in (BINOMIAL, MULTINOMIAL):
            raise FedcanonError(f"the family {self.family} has no classes to be balanced.")
        if self.family == COX and (self.weights or self.offset):
            raise FedcanonError("a Cox model takes no weights and no offset.")
        if self.family == MULTINOMIAL and self.offset:
            raise FedcanonError("a multinomial model takes no offset.")
        special = {self.response, self.event, self.weights, self.offset} - {None}
        for name in self.plan.columns:
            if name in special:
                raise FedcanonError(f"the column '{name}' cannot explain the response as well.")
        for name in self.free:
            if name not in self.plan.columns:
                raise FedcanonError(f"free names '{name}', which is none of the columns.")


@dataclass(frozen=True)
class Study:
    """Sites, and a model that is the same for all of them.

    Args:
        question: What is asked.
        sites: The sites.
        model: What the sites know of the model.
    """

    question: Question
    sites: Sites
    model: Model

    @property
    def names(self) -> list[str]:
        """The names of the entries of a model."""
        columns, count = self.model.recipe.columns, self.model.penalised
        parts = [columns[:count], columns[count:], ["(intercept)"] * self.model.has_intercept]
        if self.model.outputs == 1:
            return [name for part in parts for name in part]
        return [f"{c}: {name}" for part in parts for c in self.model.classes for name in part]

    @property
    def groups(self) -> list[list[int]]:
        """The penalised columns that come from each column of the tables."""
        found: dict[str, list[int]] = {}
        for k, name in enumerate(self.model.recipe.variables[: self.model.penalised]):
            found.setdefault(name, []).append(k)
        return list(found.values())

    def penalty(self, table: Mapping[str, Any]) -> Penalty:
        """Return a penalty on all columns that are not free, from its name and its parameters.

        Groups may be ``"variables"``: all columns that come from one column of the tables. κ of an
        elastic net is divided as in glmnet: κ₁ = κ·l1_ratio, κ₂ = κ·(1 − l1_ratio), with the ratio
        ½ unless it is given. MCP, SCAD and their kin have, unless it is given, the form in which κ
        is the λ of ncvreg.
        """
        given = with_our_names(table)
        name = str(given.get("name"))
        if not self.model.penalised or name == "zero":
            return Zero()
        if given.get("groups") == "variables":
            given |= {"groups": self.groups, "axis": 1}
        if name == ELASTIC_NET and "kappa" in given:
            kappa, ratio = given.pop("kappa"), given.pop("l1_ratio", 0.5)
            if not isinstance(ratio, int | float) or not 0 <= ratio <= 1:
                raise FedcanonError(f"l1_ratio must be between 0 and 1, not {ratio!r:.40}.")
            given |= {"kappa1": kappa * ratio, "kappa2": kappa * (1 - ratio)}
        elif name in PENALTIES and "form" in penalty_parameters(name):
            given = {"form": "lambda", **given}
        return make_penalty(given, self.model.layout)

    def has_kappa(self, table: Mapping[str, Any]) -> bool:
        """Tell whether something is penalised, and the penalty has one κ that can be chosen.

        Raises:
            FedcanonError: There is no such penalty.
        """
        # A sum or a table of layers has none of its own.
        name = str(with_our_names(table).get("name", "sum"))
        if not self.model.penalised or name == "sum":
            return False
        own = {"kappa1", "kappa2"} & table.keys()
        return (name == ELASTIC_NET and not own) or "kappa" in penalty_parameters(name)

    def penalties(self, table: Mapping[str, Any]) -> Callable[[float], Penalty]:
        """Return a function from κ to the penalty with it."""
        return lambda kappa: self.penalty({**table, "kappa": kappa})

    @cached_property
    def unpenalised(self) -> list[int]:
        """The entries of a model that are not penalised: of free columns, and intercepts."""
        return list(range(self.model.outputs * self.model.penalised, self.model.size))

    @cached_property
    def null(self) -> tuple[Tensor, Tensor]:
        """The model without penalised columns, and ∇f there."""
        if not self._by_newton:
            problem = self.problem()
            vector = null_model(problem, self.penalty({"name": "l1", "kappa": 1.0}))
            return vector, problem.value_and_gradient(vector)[1]
        vector = torch.zeros(self.model.size, dtype=torch.float64)
        if self.unpenalised:
            places = tuple(self.unpenalised)
            own = Expansions(self.sites, self.model, places, penalised=False)
            vector = solve_without_penalty(own).vector
        [packed] = self.expansions.at([(ALL, vector)])
        return vector, packed[1 : 1 + self.model.size]

    @property
    def expansions(self) -> Expansions:
        """Value, gradient and Hessian of f."""
        return Expansions(self.sites, self.model)

    @property
    def _by_newton(self) -> bool:
        return has_few_floats(self.model.size)

    @property
    def tolerance(self) -> float:
        """The largest ‖G‖ of a solution, but for rounding."""
        model, gradient = self.null
        return max(TOLERANCE * float(gradient.norm()), ROUNDING * (1 + float(model.norm())))

    def largest_kappa(self, penalty_at: Callable[[float], Penalty]) -> float:
        """Return the smallest κ at which all penalised coefficients are 0."""
        return kappa_at(self.null[1], penalty_at)

    @one_thread()
    def solutions(
        self, tasks: Sequence[Task], watch: Callable[[], object] = lambda: None
    ) -> list[Solution]:
        """Return the models that minimise f + h, each for its rows and penalty.

        It is Newton's method, or FedCanon+ if a model has too many parameters for Hessians.

        Args:
            tasks: What is to be minimised.
            watch: Is called after each round of Newton's method.
        """
        if self._by_newton:
            penalised = not all(isinstance(task.penalty, Zero) for task in tasks)
            expansions = replace(self.expansions, penalised=penalised)
            return solve_by_newton(expansions, tasks, self.tolerance, watch)
        return [solve_by_fedcanon(self.problem(task.rows), task, self.tolerance) for task in tasks]

    def fitted(self, penalty: Penalty, start: Tensor | None = None) -> Solution:
        """Return the model that minimises f + h over all rows."""
        return self.solutions([Task(penalty, self.null[0] if start is None else start)])[0]

    def problem(self, rows: Rows = ALL) -> Problem:
        """Return f as a problem over clients, whose tables must be in this process.

        Raises:
            FedcanonError: They are elsewhere.
        """
        if not isinstance(self.sites, LocalSites):
            raise FedcanonError(
                f"a model of {self.model.size} parameters is too large to be solved by requests to "
                "sites: use fewer columns, or train it with 'fedcanon deploy'."
            )
        clients = [
            objective
            for site in self.sites.tables
            if isinstance(site, StudySite)
            and (objective := site.objective(self.model, rows)) is not None
        ]
        start = torch.zeros(self.model.size, dtype=torch.float64)
        return Problem(clients, start, [client.total_weight for client in clients])

    def support(self, vector: Tensor) -> list[int]:
        """Return the entries of a model that are not 0, or carry no penalty."""
        chosen = vector != 0
        chosen[self.unpenalised] = True
        return [int(k) for k in torch.nonzero(chosen)[:, 0]]

    def refit(self, support: Sequence[int]) -> Refit:
        """Fit the selected columns without penalty; see ``refit_over``."""
        return refit_over(self.sites, self.model, support)

    @cached_property
    def to_original(self) -> sparse.csr_array:
        """The matrix that maps a model to its coefficients on the scale of the tables."""
        scales, means = np.array(self.model.recipe.scales), np.array(self.model.recipe.means)
        outputs, d = self.model.outputs, len(scales)
        places = places_of_weights(outputs, d, self.model.unpenalised)
        diagonal = np.ones(self.model.size)
        diagonal[places] = 1 / scales
        matrix = sparse.diags_array(diagonal, format="csr")
        if not self.model.has_intercept:
            return matrix
        biases = np.repeat(np.arange(outputs * d, self.model.size), d)
        shifts = np.tile(-means / scales, outputs)
        below = sparse.csr_array((shifts, (biases, places.ravel())), matrix.shape)
        return sparse.csr_array(matrix + below)

    def coefficients(self, vector: Tensor) -> Array:
        """Return the coefficients of a model on the scale of the tables, in the order of names."""
        found: Array = self.to_original @ vector.double().numpy()
        return found

    def summary(self, solution: Solution, *, level: float = 0.95) -> pd.DataFrame:
        """Return a table of coefficients on the scale of the tables.

        Beside the penalised coefficients it has those without penalty on the selected columns, with
        standard errors, p-values and intervals, which are conditional on the selection. They are
        missing if there are none: the reason is in the table's ``attrs["refit"]``.

        Args:
            solution: The model.
            level: The level of the intervals.
        """
        import pandas as pd

        table = pd.DataFrame(
            {"coefficient": self.coefficients(solution.vector)},
            index=pd.Index(self.names, name="column"),
        )
        support = self.support(solution.vector)
        columns = ("refit", "error", "z", "p", "low", "high")
        try:
            again = self.refit(support)
        except FedcanonError as error:
            table.attrs["refit"] = str(error)
            table[list(columns)] = np.nan
            return table
        rows = self.to_original[support][:, list(again.support)].toarray()
        errors = np.sqrt(np.einsum("ij,jk,ik->i", rows, again.covariance, rows))
        estimates = self.coefficients(again.vector)[support]
        values = (estimates, errors, *wald(estimates, errors, level=level))
        for name, numbers in zip(columns, values, strict=True):
            column = np.full(len(table), np.nan)
            column[support] = numbers
            table[name] = column
        return table


def begin_study(sites: Sites, question: Question) -> Study:
    """Prepare the tables of all sites alike, and describe the model to them.

    Raises:
        FedcanonError: A table lacks a column or a response, or cannot be prepared.
    """
    for name in sites.names:
        if list(sites.names).count(name) > 1 or name == EVERYWHERE:
            raise FedcanonError(f"a site cannot be called '{name}': give each its own name.")
    recipe = prepare(sites, ordered(question), question.weights)
    model = described(question, recipe, _classes(sites, question))
    if question.balanced:
        counts = total(sites, "class_counts", model=model)["counts"]
        shares = counts.sum() / (len(counts) * counts)
        model = replace(model, class_weights=tuple(shares.tolist()))
    study = Study(question, sites, model)
    study.null  # noqa: B018 - so that responses that cannot be are refused here
    return study


def ordered(question: Question) -> Plan:
    """Return the plan of a question with the free columns last."""
    plan = question.plan
    columns = [name for name in plan.columns if name not in question.free]
    columns += [name for name in plan.columns if name in question.free]
    return replace(plan, columns=columns)


def described(question: Question, recipe: Recipe, classes: Sequence[str]) -> Model:
    """Return the model of a question, whose columns are prepared by a recipe."""
    return Model(
        recipe,
        question.response,
        question.family,
        tuple(question.options.items()),
        question.event,
        question.weights,
        question.offset,
        tuple(question.free),
        tuple(classes),
    )


def _classes(sites: Sites, question: Question) -> tuple[str, ...]:
    if question.family not in (BINOMIAL, MULTINOMIAL):
        return ()
    found = tuple(levels(sites, question.response))
    if len(found) < 2:
        raise FedcanonError(
            f"the column '{question.response}' has only one value with enough rows to be named"
            f"{f', {found[0]}' if found else ''}: two are needed."
        )
    if question.family == BINOMIAL and len(found) > 2:
        shown = ", ".join(found[:5])
        raise FedcanonError(
            f"the column '{question.response}' has {len(found)} values ({shown}"
            f"{' …' if len(found) > 5 else ''}), but the family binomial is for two: use "
            "multinomial, or another family for numbers."
        )
    return found
