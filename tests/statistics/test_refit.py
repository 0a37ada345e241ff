"""Solutions and standard errors over sites, against statsmodels and scikit-learn on all rows."""

from unittest import mock

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import torch
from sklearn.linear_model import Lasso, LogisticRegression, QuantileRegressor
from statsmodels.duration.hazard_regression import PHReg

from fedcanon import FedcanonError
from fedcanon.statistics import study as study_module
from fedcanon.statistics.choosing import folds_of, validate
from fedcanon.statistics.heterogeneity import differences
from fedcanon.statistics.model import Rows
from fedcanon.statistics.refit import refit_over, wald
from fedcanon.statistics.site import StudySite
from fedcanon.statistics.study import Question, begin_study
from fedcanon.tables.preparing import Plan
from fedcanon.tables.site import NO_GUARDS, Guards
from fedcanon.tables.sites import LocalSites

RNG = np.random.default_rng(3)
M, D, SITES = 300, 6, 4
SITE = RNG.integers(0, SITES, M)
NAMES = [f"x{k}" for k in range(D)]
X = RNG.normal(size=(M, D)) + SITE[:, None] / 3
W = np.array([0.5, -0.4, 0.3, 0.0, 0.0, 0.0])
ETA = X @ W - 0.2
EXPOSURE = RNG.uniform(0.5, 3.0, M)
Y = {
    "gaussian": ETA + RNG.normal(size=M),
    "binomial": (RNG.uniform(size=M) < 1 / (1 + np.exp(-ETA))).astype(float),
    "poisson": RNG.poisson(np.exp(ETA)).astype(float),
    "gamma": RNG.gamma(2.0, np.exp(ETA) / 2),
    "negative_binomial": RNG.negative_binomial(1, 1 / (1 + np.exp(ETA))).astype(float),
}
THEIRS = {
    "gaussian": sm.families.Gaussian(),
    "binomial": sm.families.Binomial(),
    "poisson": sm.families.Poisson(),
    "gamma": sm.families.Gamma(sm.families.links.Log()),
    "negative_binomial": sm.families.NegativeBinomial(alpha=1.0),
}
TABLE = pd.DataFrame(X, columns=NAMES).assign(
    **Y,
    log_exposure=np.log(EXPOSURE),
    counts=RNG.poisson(EXPOSURE * np.exp(ETA)),
    time=np.ceil(RNG.exponential(np.exp(-ETA)) * 9),
    event=(RNG.uniform(size=M) < 0.7).astype(int),
    kind=RNG.choice(["a", "b", "c"], M),
    weight=RNG.integers(1, 4, M),
)


def sites(table=TABLE, **guards):
    return LocalSites(
        [StudySite(f"s{k}", table[k == SITE], Guards(**guards)) for k in range(SITES)]
    )


def study(response, family, columns=NAMES, table=TABLE, **settings):
    return begin_study(sites(table), Question(response, Plan(columns), family, **settings))


@pytest.mark.parametrize("name", sorted(Y))
def test_estimates_and_standard_errors_are_those_of_statsmodels(name):
    there = study(name, name)
    ours = there.refit([0, 1, 2, 5, 6])
    columns = [0, 1, 2, 5]
    fitted = sm.GLM(Y[name], sm.add_constant(X[:, columns]), family=THEIRS[name]).fit(tol=1e-14)
    order = [1, 2, 3, 4, 0]
    chosen = [0, 1, 2, 5, 6]
    rows = there.to_original[chosen][:, chosen].toarray()
    estimates = there.coefficients(ours.vector)
    assert np.allclose(estimates[chosen], fitted.params[order], atol=1e-7)
    errors = np.sqrt(np.diag(rows @ ours.covariance @ rows.T))
    assert np.allclose(errors, fitted.bse[order], rtol=1e-5)
    _, p, low, high = wald(estimates[chosen], errors)
    assert np.allclose(p, fitted.pvalues[order], atol=1e-6)
    assert np.allclose(np.stack([low, high], 1), fitted.conf_int()[order], atol=1e-5)
    assert not ours.vector[[3, 4]].any()


def test_cox_over_sites_is_the_stratified_model_of_statsmodels():
    there = study("time", "cox", event="event")
    table = there.summary(there.fitted(there.penalty({"name": "l1", "kappa": 1e-9})))
    fitted = PHReg(TABLE["time"], X, TABLE["event"], strata=SITE, ties="efron").fit()
    assert np.allclose(table["refit"], fitted.params, atol=1e-6)
    assert np.allclose(table["error"], fitted.bse, rtol=1e-5)
    assert there.names == NAMES


def test_newton_and_fedcanon_find_the_lasso_of_scikit_learn():
    there = study("gaussian", "gaussian")
    penalty = there.penalty({"name": "l1", "kappa": 0.1})
    prepared = there.model.recipe.prepared(TABLE)
    oracle = Lasso(alpha=0.1, tol=1e-14, max_iter=100_000).fit(prepared, Y["gaussian"])
    expected = np.append(oracle.coef_, oracle.intercept_)
    for few in (True, False):
        with mock.patch.object(study_module, "has_few_floats", lambda size, few=few: few):
            found = study("gaussian", "gaussian").fitted(penalty)
        assert found.converged
        assert np.allclose(found.vector, expected, atol=1e-6)
        assert there.support(found.vector) == [*np.flatnonzero(oracle.coef_), D]
    assert there.fitted(penalty).rounds <= 15


def test_multinomial_regression_is_scikit_learns():
    there = study("kind", "multinomial", free=["x0"])
    found = there.fitted(there.penalty({"name": "ridge", "kappa": 0.1}))
    assert there.names[:2] == ["a: x1", "a: x2"]
    assert there.names[-4:] == ["c: x0", "a: (intercept)", "b: (intercept)", "c: (intercept)"]
    coefficients = there.coefficients(found.vector)
    table = dict(zip(there.names, coefficients, strict=True))
    without = study("kind", "multinomial")
    ridge = without.fitted(without.penalty({"name": "ridge", "kappa": 0.1}))
    prepared = without.model.recipe.prepared(TABLE)
    theirs = LogisticRegression(C=1 / (0.1 * M), tol=1e-12, max_iter=10_000)
    theirs.fit(prepared, TABLE["kind"])
    ours = ridge.vector.numpy()[: 3 * D].reshape(3, D)
    assert np.allclose(ours, theirs.coef_, atol=1e-6)
    assert table["a: x0"] != 0
    summary = without.summary(ridge)
    assert summary["refit"].isna().all()
    assert "no standard errors for the family multinomial" in summary.attrs["refit"]


def test_weights_and_balanced_classes_are_those_of_scikit_learn():
    rare = TABLE.assign(rare=((TABLE["x0"] > 0.9) & (TABLE["x1"] > -0.5)).astype(int))
    there = study("rare", "binomial", ["x0", "x1", "x2"], rare, balanced=True, weights="weight")
    found = there.fitted(there.penalty({"name": "ridge", "kappa": 0.01}))
    prepared = there.model.recipe.prepared(rare)
    counts = np.bincount(rare["rare"])
    own = (M / (2 * counts))[rare["rare"]] * rare["weight"]
    theirs = LogisticRegression(C=1 / (0.01 * own.sum()), tol=1e-12, max_iter=10_000)
    theirs.fit(prepared, rare["rare"], sample_weight=own)
    assert np.allclose(found.vector[:3], theirs.coef_[0], atol=1e-6)
    assert there.model.classes == ("0", "1")


def test_standard_errors_with_balanced_classes_are_the_sandwich_of_statsmodels():
    rare = TABLE.assign(rare=(TABLE["x0"] + RNG.normal(size=M) > 1.6).astype(int))
    there = study("rare", "binomial", ["x0", "x1"], rare, balanced=True)
    table = there.summary(there.fitted(there.penalty({"name": "l1", "kappa": 1e-9})))
    weights = (M / (2 * np.bincount(rare["rare"])))[rare["rare"]]
    model = sm.GLM(
        rare["rare"],
        sm.add_constant(rare[["x0", "x1"]]),
        family=sm.families.Binomial(),
        var_weights=weights,
    ).fit(tol=1e-14, cov_type="HC0")
    assert np.allclose(table["refit"], np.roll(model.params, -1), atol=1e-6)
    assert np.allclose(table["error"], np.roll(model.bse, -1), rtol=1e-5)


def test_weights_of_any_size_give_the_errors_of_weighted_least_squares():
    theirs = sm.WLS(TABLE["gaussian"], sm.add_constant(X[:, :2]), weights=TABLE["weight"]).fit()
    for factor in (1.0, 0.02):
        weighted = TABLE.assign(weight=factor * TABLE["weight"])
        there = study("gaussian", "gaussian", NAMES[:2], weighted, weights="weight")
        table = there.summary(there.fitted(there.penalty({"name": "l1", "kappa": 1e-9})))
        assert np.allclose(table["error"], np.roll(theirs.bse, -1), rtol=1e-6)


def test_rows_without_weight_are_left_out():
    some = TABLE.assign(weight=np.where(SITE == 0, 0.0, 1.0))
    there = study("gaussian", "gaussian", NAMES[:2], some, weights="weight")
    table = there.summary(there.fitted(there.penalty({"name": "l1", "kappa": 1e-9})))
    rows = SITE != 0
    theirs = sm.OLS(TABLE["gaussian"][rows], sm.add_constant(X[rows, :2])).fit()
    assert np.allclose(table["refit"], np.roll(theirs.params, -1), atol=1e-7)
    assert np.allclose(table["error"], np.roll(theirs.bse, -1), rtol=1e-6)


def test_large_responses_and_tiny_columns():
    scaled = TABLE.assign(y=1e8 + 1e7 * TABLE["gaussian"], small=1e-13 * TABLE["x1"])
    there = study("y", "gaussian", ["x0", "small"], scaled)
    found = there.fitted(there.penalty({"name": "l1", "kappa": 1e-3}))
    assert found.converged
    assert found.rounds <= 15
    table = there.summary(found)
    theirs = sm.OLS(TABLE["gaussian"], sm.add_constant(X[:, :2])).fit()
    assert table.loc["x0", "refit"] == pytest.approx(1e7 * theirs.params.iloc[1], rel=1e-6)
    assert table.loc["small", "error"] == pytest.approx(1e20 * theirs.bse.iloc[2], rel=1e-6)


def test_a_site_with_as_many_rows_as_coefficients_is_not_compared():
    tables = [TABLE[:100], TABLE[100:200], TABLE[200:203]]
    few = LocalSites([StudySite(f"s{k}", t, NO_GUARDS) for k, t in enumerate(tables)])
    there = begin_study(few, Question("gaussian", Plan(NAMES[:2])))
    assert differences(there, [0, 1, 2]).sites == ["s0", "s1"]


def test_an_exposure_is_an_offset():
    there = study("counts", "poisson", offset="log_exposure")
    table = there.summary(there.fitted(there.penalty({"name": "l1", "kappa": 1e-9})))
    model = sm.GLM(
        TABLE["counts"], sm.add_constant(X), family=sm.families.Poisson(), exposure=EXPOSURE
    ).fit(tol=1e-14)
    assert np.allclose(table["refit"], np.roll(model.params, -1), atol=1e-7)


def test_variables_that_depend_on_one_another_have_no_standard_errors():
    doubled = TABLE.assign(twin=2 * TABLE["x0"] + 1)
    there = study("gaussian", "gaussian", ["x0", "twin"], doubled)
    with pytest.raises(FedcanonError, match="depend on one another"):
        there.refit([0, 1, 2])
    table = there.summary(there.fitted(there.penalty({"name": "ridge", "kappa": 0.1})))
    assert "depend on one another" in table.attrs["refit"]


class TestGuards:
    def test_few_rows_for_many_parameters(self):
        there = begin_study(
            sites(parameters_per_row=0.05), Question("gaussian", Plan(NAMES), "gaussian")
        )
        solution = there.fitted(there.penalty({"name": "l1", "kappa": 0.01}))  # has a penalty
        table = there.summary(solution)
        assert "7 parameters is more than parameters_per_row = 0.05" in table.attrs["refit"]
        with pytest.raises(FedcanonError, match="parameters_per_row"):
            begin_study(
                sites(parameters_per_row=0.05, penalised=False),
                Question("gaussian", Plan(NAMES), "gaussian"),
            )

    def test_one_site_alone(self):
        there = begin_study(
            sites(minimum_sites=4), Question("gaussian", Plan(NAMES[:2]), "gaussian")
        )
        with pytest.raises(
            FedcanonError, match="over at least minimum_sites = 4 sites, not over 1"
        ):
            validate(
                there,
                there.penalties({"name": "l1"}),
                np.array([0.1]),
                folds_of(there, 2, "sites"),
            )

    def test_a_model_without_penalty(self):
        there = begin_study(
            sites(parameters_per_row=0.05), Question("gaussian", Plan(NAMES), "gaussian")
        )
        with pytest.raises(FedcanonError, match="7 parameters is more than"):
            there.fitted(there.penalty({"name": "zero"}))

    def test_own_fits_are_never_sums(self):
        one = sites(minimum_sites=3).tables[0]
        model = study("gaussian", "gaussian").model
        with pytest.raises(FedcanonError, match="minimum_sites = 3 sites, not over 1"):
            one.answer("own_fit", 3, {"model": model, "support": [0]})

    def test_a_part_of_one_row(self):
        there = study("gaussian", "gaussian")
        with pytest.raises(FedcanonError, match="rows for this, fewer"):
            there.expansions.at([(Rows(parts=100), torch.zeros(D + 1, dtype=torch.float64))])


def test_huber_from_far_away_is_nearly_the_median_regression_of_scikit_learn():
    there = study("gaussian", "huber", table=TABLE.assign(gaussian=1000 + 10 * TABLE["gaussian"]))
    found = there.fitted(there.penalty({"name": "ridge", "kappa": 1e-9}))
    assert found.converged
    prepared = np.column_stack([there.model.recipe.prepared(TABLE), np.ones(M)])
    y = 1000 + 10 * TABLE["gaussian"].to_numpy()
    residual = prepared @ found.vector.numpy() - y
    slopes = prepared.T @ np.clip(residual, -1.35, 1.35) / M  # the gradient of the loss
    assert np.abs(slopes).max() < 1e-6
    assert np.mean(np.abs(residual)) == pytest.approx(
        np.mean(np.abs(QuantileRegressor(alpha=0).fit(prepared, y).predict(prepared) - y)), rel=0.01
    )


def test_a_refit_alone_is_refused_for_families_without_a_likelihood():
    there = study("gaussian", "huber")
    with pytest.raises(FedcanonError, match="no standard errors for the family huber"):
        refit_over(there.sites, there.model, [0])
