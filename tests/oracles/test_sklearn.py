"""ℓ1 logistic regression over clients against scikit-learn on the pooled data."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression

from fedcanon import Logistic
from fedcanon.data import DATASETS
from fedcanon.penalties import L1, on_weights
from tests.oracles.federations import solve, spread


@pytest.mark.slow
def test_breast_cancer_has_scikit_learns_coefficients():
    """Unpenalised intercept, clients weighted by their samples, α = βK."""
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(0)) / X.std(0)
    kappa = 0.05
    problem = spread(X, y, intercept=True)
    model = solve(
        problem,
        on_weights(L1(kappa), problem.layout),
        speed=20,
        K=40,
        tolerance=1e-8,
        rounds=1000,
    ).numpy()
    oracle = LogisticRegression(
        C=1 / (kappa * len(y)),
        l1_ratio=1,
        solver="saga",
        tol=1e-12,
        max_iter=100_000,
        random_state=0,
    ).fit(X, y)
    expected = np.append(oracle.coef_[0], oracle.intercept_)
    assert np.abs(model - expected).max() < 1e-5
    assert ((model == 0) == (expected == 0)).all()
    assert 0 < (model == 0).sum() < 30


def agree_in_objective_and_decisions(X, dense, y, kappa, **options):
    """Where features repeat the solution is not unique, but its value and its decisions are."""
    problem = spread(X, y, intercept=False)
    model = solve(problem, L1(kappa), **options)
    oracle = LogisticRegression(
        C=1 / (kappa * len(y)),
        l1_ratio=1,
        solver="liblinear",
        fit_intercept=False,
        tol=1e-9,
        max_iter=10_000,
        random_state=0,  # liblinear shuffles, and near its rounding some orders never stop
    ).fit(dense, y)
    expected = torch.from_numpy(oracle.coef_[0])
    pooled = Logistic(X, y, intercept=False)
    ours, theirs = (pooled.value(w) + L1(kappa).value(w) for w in (model, expected))
    assert ours == pytest.approx(theirs, rel=1e-9)
    assert np.abs(pooled.scores(model) - pooled.scores(expected)).max() < 1e-6


@pytest.mark.slow
@pytest.mark.data("a9a")
def test_a9a():
    train = DATASETS["a9a"]().train
    agree_in_objective_and_decisions(
        train.inputs,
        train.inputs.toarray(),
        train.targets.numpy(),
        kappa=5e-3,
        speed=40,
        K=40,
        tolerance=1e-8,
        rounds=1000,
    )


@pytest.mark.slow
def test_even_and_odd_digits():
    X, y = load_digits(return_X_y=True)
    X = X / 16
    agree_in_objective_and_decisions(
        X, X, y % 2, kappa=1e-2, speed=40, K=40, tolerance=1e-9, rounds=2000
    )
