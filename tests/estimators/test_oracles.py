"""Coefficients over unequal clients against scikit-learn's on the pooled data."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression

from fedcanon.estimators import FederatedClassifier, FederatedRegressor
from tests.estimators.data import spread


def assert_same(model, oracle, tolerance=1e-6):
    assert np.abs(model.coef_ - oracle.coef_).max() < tolerance
    assert np.abs(model.intercept_ - oracle.intercept_).max() < tolerance
    assert ((model.coef_ == 0) == (oracle.coef_ == 0)).all()
    assert 0 < (model.coef_ == 0).sum() < model.coef_.size


@pytest.mark.parametrize("intercept", [True, False])
def test_lasso_on_diabetes(intercept):
    X, y, clients = spread(load_diabetes)
    model = FederatedRegressor(kappa=1.0, fit_intercept=intercept, tol=1e-10)
    oracle = Lasso(alpha=1.0, fit_intercept=intercept, tol=1e-12, max_iter=10_000)
    assert_same(model.fit(X, y, groups=clients), oracle.fit(X, y))
    assert model.predict(X) == pytest.approx(oracle.predict(X), abs=1e-6)
    assert model.score(X, y) == pytest.approx(oracle.score(X, y))


def test_elastic_net_on_diabetes():
    X, y, clients = spread(load_diabetes)
    penalty = {"name": "elastic_net", "kappa1": 4.0, "kappa2": 1.0}
    model = FederatedRegressor(penalty=penalty, tol=1e-10).fit(X, y, groups=clients)
    assert_same(model, ElasticNet(alpha=5.0, l1_ratio=0.8, tol=1e-12).fit(X, y))


@pytest.mark.slow
def test_l1_logistic_regression_on_breast_cancer():
    X, y, clients = spread(load_breast_cancer)
    kappa = 0.05
    model = FederatedClassifier(kappa=kappa, alpha=12.0, beta=0.3, local_steps=40, tol=1e-9)
    oracle = LogisticRegression(
        C=1 / (kappa * len(y)),
        l1_ratio=1,
        solver="saga",
        tol=1e-12,
        max_iter=100_000,
        random_state=0,
    )
    assert_same(model.fit(X, y, groups=clients), oracle.fit(X, y))
    assert model.predict_proba(X) == pytest.approx(oracle.predict_proba(X), abs=1e-6)


@pytest.mark.slow
def test_l1_multinomial_regression_on_iris():
    X, y, clients = spread(load_iris)
    kappa = 0.02
    model = FederatedClassifier(kappa=kappa, alpha=20.0, beta=0.5, local_steps=40, tol=1e-7)
    oracle = LogisticRegression(
        C=1 / (kappa * len(y)),
        l1_ratio=1,
        solver="saga",
        tol=1e-10,
        max_iter=100_000,
        random_state=0,
    )
    assert_same(model.fit(X, y, groups=clients), oracle.fit(X, y), tolerance=1e-4)
    assert model.predict_proba(X) == pytest.approx(oracle.predict_proba(X), abs=1e-4)
