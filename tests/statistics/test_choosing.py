"""Paths and cross-validation over sites, against scikit-learn and plain loops on pooled rows."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Lasso, LassoLarsIC, lasso_path
from statsmodels.duration.hazard_regression import PHReg

from fedcanon import FedcanonError
from fedcanon.statistics.choosing import (
    Validation,
    automatic_kappas,
    bic,
    folds_of,
    follow_paths,
    validate,
)
from fedcanon.statistics.site import StudySite
from fedcanon.statistics.study import Question, begin_study
from fedcanon.tables.preparing import Plan
from fedcanon.tables.sites import LocalSites
from tests.statistics.test_study import PLAN, POOLED, SITES


def study(response="visits", family="poisson", columns=PLAN.columns, **settings):
    return begin_study(SITES, Question(response, Plan(columns), family, **settings))


def lasso(there):
    return there.penalties({"name": "l1"})


def prepared(there):
    recipe = there.model.recipe
    return np.concatenate([recipe.prepared(site.table) for site in SITES.tables])


def test_a_path_is_that_of_scikit_learn():
    columns = ["noise1", "noise2", "noise3"]
    there = study("age", "gaussian", columns)
    kappas = automatic_kappas(there, lasso(there))[:30:3]
    [ours] = follow_paths(there, lasso(there), kappas)
    centred = POOLED["age"].to_numpy() - POOLED["age"].mean()
    _, theirs, _ = lasso_path(prepared(there), centred, alphas=kappas, tol=1e-14, max_iter=100_000)
    found = np.stack([vector.numpy()[:3] for vector in ours.vectors], axis=1)
    assert np.allclose(found, theirs, atol=1e-6)
    assert not found[:, 0].any()
    assert all(solution.converged for solution in ours.solutions)


@pytest.mark.parametrize("over", ["rows", "sites"])
def test_cross_validation_is_a_plain_loop(over):
    there = study("age", "gaussian", ["noise1", "noise2", "noise3"])
    kappas = automatic_kappas(there, lasso(there))[[5, 15, 25]]
    folds = folds_of(there, 3, over)
    found = validate(there, lasso(there), kappas, folds)[1].deviance
    assert found.values.shape == (3 if over == "rows" else 5, 3)
    assert found.sizes.sum() == len(POOLED)
    x, y = prepared(there), POOLED["age"].to_numpy()
    for k, fold in enumerate(folds):
        left = np.concatenate([fold.of(site.name, len(site.table)) for site in SITES.tables])
        for j, kappa in enumerate(kappas):
            model = Lasso(alpha=kappa, tol=1e-14, max_iter=100_000).fit(x[~left], y[~left])
            expected = np.mean((y[left] - model.predict(x[left])) ** 2)
            assert found.values[k, j] == pytest.approx(expected, rel=1e-6)


def test_folds_divide_the_rows_of_every_site():
    parts = folds_of(study(), 4, "rows", seed=3)
    for site in SITES.tables:
        masks = np.stack([part.of(site.name, len(site.table)) for part in parts])
        assert (masks.sum(0) == 1).all()
        assert np.ptp(masks.sum(1)) <= 1


def test_discrimination_of_rows_that_were_left_out():
    there = study("ill", "binomial")
    kappas = automatic_kappas(there, lasso(there))[[0, 20]] * [2, 1]
    _, found = validate(there, lasso(there), kappas, folds_of(there, 4, "rows"))
    assert found.discrimination is not None
    assert found.discrimination.means[0] == pytest.approx(0.5)  # all coefficients are 0
    assert found.discrimination.means[1] < 0.4
    _, counts = validate(study(), lasso(study()), kappas, folds_of(there, 2, "rows"))
    assert counts.discrimination is None


def test_the_best_and_the_simplest_model_within_one_error():
    deviances = np.array([[5.0, 3.0, 2.2, 2.4], [5.2, 2.4, 1.8, 1.6], [4.8, 2.1, 2.0, 2.3]])
    found = Validation(np.array([4.0, 3.0, 2.0, 1.0]), deviances, np.ones(3))
    assert found.best == 2
    assert np.allclose(found.errors, deviances.std(0, ddof=1) / np.sqrt(3))
    assert found.means[found.simplest] <= found.means[2] + found.errors[2]
    noisy = Validation(found.kappas, deviances + np.array([[2.0], [0.0], [-2.0]]), np.ones(3))
    assert noisy.simplest == 1


def test_cox_is_validated_by_what_rows_add_to_the_likelihood():
    timed = [site.table.assign(t=site.table["visits"] + 1.0) for site in SITES.tables]
    sites = LocalSites([StudySite(f"hospital {k}", table) for k, table in enumerate(timed)])
    there = begin_study(sites, Question("t", PLAN, "cox", event="ill"))
    kappas = automatic_kappas(there, lasso(there))[[0, 10]] * [2, 1]  # all is 0 at the first
    folds = folds_of(there, 4, "rows")
    _, found = validate(there, lasso(there), kappas, folds)
    everything, where = pd.concat(timed), np.repeat(np.arange(len(timed)), list(map(len, timed)))
    left = [folds[0].of(site.name, len(site.table)) for site in sites.tables]
    kept = ~np.concatenate(left)

    def likelihood(rows):
        """Of the model without coefficients, which is the first of the path."""
        own = everything[rows]
        model = PHReg(
            own["t"], np.zeros((len(own), 1)), own["ill"], strata=where[rows], ties="efron"
        )
        return model.loglike(np.zeros(1))

    events = everything["ill"][~kept].sum()
    expected = -2 * (likelihood(np.ones_like(kept)) - likelihood(kept)) / events
    assert found.deviance.values[0, 0] == pytest.approx(expected, rel=1e-9)
    assert found.discrimination is not None


def test_bic_is_scikit_learns_up_to_what_all_models_share():
    there = study("age", "gaussian", ["noise1", "noise2", "noise3"])
    kappas = automatic_kappas(there, lasso(there))[::7]
    [path] = follow_paths(there, lasso(there), kappas)
    x, y = prepared(there), POOLED["age"].to_numpy()
    ours, n = bic(there, path), len(y)
    for value, vector in zip(ours, path.vectors, strict=True):
        w = vector.numpy()
        squares = np.sum((y - x @ w[:3] - w[3]) ** 2)
        theirs = n * np.log(squares / n) + (np.count_nonzero(w[:3]) + 1) * np.log(n)
        assert value == pytest.approx(theirs)
    chosen = LassoLarsIC(criterion="bic").fit(x, y)
    best = path.vectors[int(np.argmin(ours))].numpy()[:3]
    assert ((best != 0) == (chosen.coef_ != 0)).all()
    extended = bic(there, path, extended=True) - ours
    counts = np.array([np.count_nonzero(v[:3]) for v in path.vectors])
    assert np.allclose(extended, 2 * np.log(np.array([1, 3, 3, 1])[counts]))


def test_odd_folds_are_refused():
    with pytest.raises(FedcanonError, match="rows are divided"):
        folds_of(study(), 1, "rows")
    alone = begin_study(LocalSites(SITES.tables[:1]), Question("ill", Plan(["age"]), "binomial"))
    with pytest.raises(FedcanonError, match="two or more"):
        folds_of(alone, 5, "sites")
    tables = [SITES.tables[k].table.assign(t=1.0 + k, ill=0 if k else 1) for k in range(3)]
    rare = LocalSites([StudySite(f"s{k}", table) for k, table in enumerate(tables)])
    cox = begin_study(rare, Question("t", Plan(["age"]), "cox", event="ill"))
    with pytest.raises(FedcanonError, match="fewer than two folds leave out rows, or events"):
        validate(cox, lasso(cox), np.array([1.0]), folds_of(cox, 0, "sites"))
    there = study()
    with pytest.raises(FedcanonError, match="fewer than its minimum_rows"):
        validate(there, lasso(there), np.array([1.0]), folds_of(there, 40, "rows"))
