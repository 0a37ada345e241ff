"""Paths and cross-validation over sites, against scikit-learn and plain loops on pooled rows."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import lasso_path
from statsmodels.duration.hazard_regression import PHReg

from fedcanon import FedcanonError, Problem
from fedcanon.statistics import choosing
from fedcanon.statistics.choosing import Validation, automatic_kappas, follow_path, validate
from fedcanon.statistics.study import Question, begin_study
from fedcanon.tables.preparing import Plan
from fedcanon.tables.site import SiteTable
from tests.statistics.test_study import PLAN, POOLED, SITES

L1 = {"name": "l1"}


def study(response="visits", family="poisson", columns=PLAN.columns, **settings):
    return begin_study(SITES, Question(response, Plan(columns), family, **settings))


def at(there):
    return lambda kappa: there.penalty({**L1, "kappa": kappa})


def test_a_path_is_that_of_scikit_learn():
    columns = ["noise1", "noise2", "noise3"]
    there = study("age", "gaussian", columns)
    kappas = automatic_kappas(there, at(there))[:30:3]
    ours = follow_path(there, at(there), kappas)
    prepared = np.concatenate([there.recipe.prepared(site.table) for site in SITES])
    centred = POOLED["age"].to_numpy() - POOLED["age"].mean()
    _, theirs, _ = lasso_path(prepared, centred, alphas=kappas, tol=1e-14, max_iter=100_000)
    found = np.stack([vector.numpy()[:3] for vector in ours.vectors], axis=1)
    assert np.allclose(found, theirs, atol=1e-6)
    assert not found[:, 0].any()
    assert all(solution.converged for solution in ours.solutions)


@pytest.mark.parametrize("over", ["rows", "sites"])
def test_cross_validation_is_a_plain_loop(over):
    there = study("ill", "binomial")
    kappas = automatic_kappas(there, at(there))[[5, 15, 25]]
    found = validate(there, L1, kappas, folds=3, over=over)
    assert found.deviances.shape == (3 if over == "rows" else 5, 3)
    assert found.sizes.sum() == len(POOLED)
    if over == "sites":
        left = begin_study(SITES[1:], Question("ill", PLAN, "binomial"))
        prepared = there.recipe.prepared(SITES[0].table)
        model = follow_path(there_without(there), at(there), kappas).vectors[2].numpy()
        score = prepared @ model[:-1] + model[-1]
        y = SITES[0].table["ill"].to_numpy()
        deviance = -2 * np.mean(y * score - np.logaddexp(0, score))
        assert found.deviances[0, 2] == pytest.approx(deviance, rel=1e-7)
        assert left.names == there.names


def there_without(there):
    clients = there.problem.clients[1:]
    weights = [client.total_weight for client in clients]
    return replace(there, problem=Problem(clients, there.problem.start, weights))


def test_the_best_and_the_simplest_model_within_one_error():
    deviances = np.array([[5.0, 3.0, 2.2, 2.4], [5.2, 2.4, 1.8, 1.6], [4.8, 2.1, 2.0, 2.3]])
    found = Validation(np.array([4.0, 3.0, 2.0, 1.0]), deviances, np.ones(3))
    assert found.best == 2
    assert np.allclose(found.errors, deviances.std(0, ddof=1) / np.sqrt(3))
    assert found.means[found.simplest] <= found.means[2] + found.errors[2]
    noisy = Validation(found.kappas, deviances + np.array([[2.0], [0.0], [-2.0]]), np.ones(3))
    assert noisy.simplest == 1


def test_cox_is_validated_by_what_rows_add_to_the_likelihood():
    timed = [site.table.assign(t=site.table["visits"] + 1.0) for site in SITES]
    sites = [SiteTable(f"hospital {k}", table) for k, table in enumerate(timed)]
    there = begin_study(sites, Question("t", PLAN, "cox", event="ill"))
    kappas = automatic_kappas(there, at(there))[[0, 10]] * [2, 1]  # all is 0 at the first
    found = validate(there, L1, kappas, folds=4)
    everything, where = pd.concat(timed), np.repeat(np.arange(len(timed)), list(map(len, timed)))
    left_out = choosing._parts(there, 4, "rows", 0)[0]
    starts = np.concatenate([[0], np.cumsum(list(map(len, timed)))])
    kept = np.ones(len(everything), dtype=bool)
    for site, rows in left_out.items():
        kept[starts[site] + rows] = False

    def likelihood(rows):
        """Of the model without coefficients, which is the first of the path."""
        own = everything[rows]
        model = PHReg(
            own["t"], np.zeros((len(own), 1)), own["ill"], strata=where[rows], ties="efron"
        )
        return model.loglike(np.zeros(1))

    expected = -2 * (likelihood(np.ones_like(kept)) - likelihood(kept)) / (~kept).sum()
    assert found.deviances[0, 0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("settings", [{"folds": 1}, {"folds": 91}])
def test_odd_folds_are_refused(settings):
    there = study()
    with pytest.raises(FedcanonError, match="rows are divided"):
        validate(there, L1, np.array([1.0]), **settings)
