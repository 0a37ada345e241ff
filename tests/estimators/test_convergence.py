"""The default tolerance: a fit is close to scikit-learn's on the pooled data, or it warns."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_iris,
    load_wine,
    make_classification,
    make_regression,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression

from fedcanon.estimators import FederatedClassifier, FederatedRegressor
from tests.estimators.data import spread


def synthetic(return_X_y):
    return make_classification(500, 20, n_informative=5, random_state=0)


def wide(return_X_y):
    return make_regression(300, 50, n_informative=5, noise=5, random_state=0)


def unbalanced(return_X_y):
    X, y = load_breast_cancer(return_X_y=True)
    rows = np.flatnonzero((y == 0) | (np.arange(len(y)) % 6 == 0))
    return X[rows], y[rows]


def logistic(kappa, samples):
    return LogisticRegression(
        C=1 / (kappa * samples), l1_ratio=1, solver="saga", tol=1e-7, max_iter=20_000
    )


def distance(model, oracle):
    """The largest error of a coefficient, as a part of the largest coefficient."""
    return np.abs(model.coef_ - oracle.coef_).max() / np.abs(oracle.coef_).max()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("load", "kappa"),
    [
        (load_breast_cancer, 0.01),
        (synthetic, 0.03),
        (synthetic, 0.01),
        (load_iris, 0.1),
        (load_wine, 0.1),
    ],
)
def test_a_logistic_fit_is_close_by_default(load, kappa):
    X, y, clients = spread(load)
    model = FederatedClassifier(kappa=kappa, local_steps=1).fit(X, y, groups=clients)
    assert distance(model, logistic(kappa, len(y)).fit(X, y)) < 2e-3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("load", "kappa"),
    [(load_breast_cancer, 0.2), (load_breast_cancer, 0.05), (unbalanced, 0.1), (load_iris, 0.005)],
)
def test_a_fit_that_takes_long_is_close_or_warns(load, kappa):
    X, y, clients = spread(load)
    model = FederatedClassifier(kappa=kappa, rounds=1000, local_steps=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y, groups=clients)
    warned = any(warning.category is ConvergenceWarning for warning in caught)
    assert warned or distance(model, logistic(kappa, len(y)).fit(X, y)) < 2e-3


@pytest.mark.parametrize(
    ("load", "kappa"), [(load_diabetes, 5.0), (load_diabetes, 0.5), (wide, 1.0)]
)
def test_a_regression_is_close_by_default(load, kappa):
    X, y, clients = spread(load)
    model = FederatedRegressor(kappa=kappa).fit(X, y, groups=clients)
    assert distance(model, Lasso(alpha=kappa, tol=1e-12).fit(X, y)) < 1e-3
    model.set_params(penalty={"name": "elastic_net", "kappa1": 0.8 * kappa, "kappa2": 0.2 * kappa})
    oracle = ElasticNet(alpha=kappa, l1_ratio=0.8, tol=1e-12).fit(X, y)
    assert distance(model.fit(X, y, groups=clients), oracle) < 1e-3


@pytest.mark.slow
def test_large_targets_do_not_make_the_tolerance_large():
    X, y, clients = spread(load_diabetes)
    oracle = Lasso(alpha=1.0, tol=1e-12).fit(X, y)
    for shift in (-1e5, 1e5):
        model = FederatedRegressor(kappa=1.0, local_steps=1).fit(X, y + shift, groups=clients)
        assert distance(model, oracle) < 1e-3
        assert model.intercept_ - shift == pytest.approx(oracle.intercept_, abs=1e-2)
    for scale in (1e-3, 1e3):
        model = FederatedRegressor(kappa=scale, local_steps=1).fit(X, scale * y, groups=clients)
        assert np.abs(model.coef_ / scale - oracle.coef_).max() < 1e-3 * np.abs(oracle.coef_).max()


def test_the_warning_says_what_to_do():
    X, y, clients = spread(load_breast_cancer)
    model = FederatedClassifier(kappa=0.01, rounds=20, local_steps=1)
    with pytest.warns(ConvergenceWarning) as caught:
        model.fit(X, y, groups=clients)
    message = str(caught[0].message)
    assert "has not converged after 20 rounds" in message
    for advice in ("Scale the features", "newton", "more rounds", "larger tol", "tol=0"):
        assert advice in message
    assert caught[0].filename == __file__


@pytest.mark.slow
def test_the_automatic_method_is_newtons_for_lines_and_fedcanon_plus_for_networks():
    X, y, clients = spread(wide)
    line = FederatedRegressor(kappa=1.0, algorithm="auto").fit(X, y, groups=clients)
    assert line.n_iter_ <= 15
    assert distance(line, Lasso(alpha=1.0, tol=1e-12).fit(X, y)) < 1e-6
    network = FederatedRegressor(algorithm="auto", hidden=(4,), rounds=3, tol=0)
    assert network.fit(X, y, groups=clients).records_[-1].cost.server_prox == 3
