"""Solutions and standard errors over sites, against statsmodels and scikit-learn on all rows."""

import numpy as np
import pytest
import statsmodels.api as sm
import torch
from sklearn.linear_model import Lasso
from statsmodels.duration.hazard_regression import PHReg

from fedcanon import FedcanonError, Problem
from fedcanon.objectives.cox import Cox
from fedcanon.objectives.families import FAMILIES, Gaussian, Poisson
from fedcanon.objectives.linear import LinearObjective
from fedcanon.penalties import L1, on_weights
from fedcanon.statistics.refit import refit, wald
from fedcanon.statistics.solving import solve, support

RNG = np.random.default_rng(3)
M, D, SITES = 300, 6, 4
SITE = RNG.integers(0, SITES, M)
X = RNG.normal(size=(M, D)) + SITE[:, None] / 3
W = np.array([0.5, -0.4, 0.3, 0.0, 0.0, 0.0])
ETA = X @ W - 0.2
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


def problem(name, free=0):
    rows = [np.flatnonzero(site == SITE) for site in range(SITES)]
    clients = [LinearObjective(X[r], Y[name][r], FAMILIES[name](), free=free) for r in rows]
    start = torch.zeros(D + 1, dtype=torch.float64)
    return Problem(clients, start, [client.total_weight for client in clients])


@pytest.mark.parametrize("name", sorted(Y))
def test_estimates_and_standard_errors_are_those_of_statsmodels(name):
    chosen = torch.tensor([True, True, True, False, False, True, True])
    ours = refit(problem(name), chosen)
    columns = [0, 1, 2, 5]
    fitted = sm.GLM(Y[name], sm.add_constant(X[:, columns]), family=THEIRS[name]).fit(tol=1e-14)
    order = [1, 2, 3, 4, 0]
    assert np.allclose(ours.vector[chosen], fitted.params[order], atol=1e-7)
    errors = np.sqrt(np.diag(ours.covariance))
    assert np.allclose(errors, fitted.bse[order], rtol=1e-5)
    _, p, low, high = wald(ours.vector[chosen].numpy(), errors)
    assert np.allclose(p, fitted.pvalues[order], atol=1e-6)
    assert np.allclose(np.stack([low, high], 1), fitted.conf_int()[order], atol=1e-5)
    assert not bool(ours.vector[~chosen].any())


def test_cox_over_sites_is_the_stratified_model_of_statsmodels():
    times, events = np.ceil(RNG.exponential(np.exp(-ETA)) * 9), RNG.uniform(size=M) < 0.7
    rows = [np.flatnonzero(site == SITE) for site in range(SITES)]
    clients = [Cox(X[r], times[r], events[r]) for r in rows]
    start = torch.zeros(D, dtype=torch.float64)
    ours = refit(
        Problem(clients, start, [c.total_weight for c in clients]), torch.ones(D, dtype=torch.bool)
    )
    fitted = PHReg(times, X, events, strata=SITE, ties="efron").fit()
    assert np.allclose(ours.vector, fitted.params, atol=1e-6)
    assert np.allclose(np.sqrt(np.diag(ours.covariance)), fitted.bse, rtol=1e-5)


def test_newton_and_fedcanon_find_the_lasso_of_scikit_learn():
    there = problem("gaussian")
    penalty = on_weights(L1(0.1), there.layout)
    oracle = Lasso(alpha=0.1, tol=1e-14, max_iter=100_000).fit(X, Y["gaussian"])
    expected = np.append(oracle.coef_, oracle.intercept_)
    for floats in (10**6, 0):
        found = solve(there, penalty, tolerance=1e-9, max_floats=floats)
        assert found.converged
        assert np.allclose(found.vector, expected, atol=1e-7)
        assert support(found.vector, penalty).tolist() == [*(oracle.coef_ != 0), True]
    assert solve(there, penalty).rounds <= 15


def test_free_variables_stay_and_belong_to_the_support():
    there = problem("poisson", free=2)
    penalty = on_weights(L1(100.0), there.layout)
    found = solve(there, penalty)
    assert found.vector[:4].tolist() == [0.0] * 4
    assert bool((found.vector[4:] != 0).all())
    assert support(found.vector, penalty).tolist() == [False] * 4 + [True] * 3
    free = sm.GLM(Y["poisson"], sm.add_constant(X[:, 4:]), family=sm.families.Poisson())
    assert np.allclose(found.vector[[6, 4, 5]], free.fit(tol=1e-14).params, atol=1e-7)


def test_variables_that_depend_on_one_another_have_no_standard_errors():
    doubled = np.concatenate([X, X[:, :1]], axis=1)
    client = LinearObjective(doubled, Y["gaussian"], Gaussian())
    there = Problem([client], torch.zeros(D + 2, dtype=torch.float64))
    with pytest.raises(FedcanonError, match="depend on one another"):
        refit(there, torch.ones(D + 2, dtype=torch.bool))


def test_an_exposure_is_an_offset():
    exposure = RNG.uniform(0.5, 3.0, M)
    counts = RNG.poisson(exposure * np.exp(ETA)).astype(float)
    client = LinearObjective(X, counts, Poisson(), offset=np.log(exposure))
    there = Problem([client], torch.zeros(D + 1, dtype=torch.float64))
    ours = refit(there, torch.ones(D + 1, dtype=torch.bool))
    model = sm.GLM(counts, sm.add_constant(X), family=sm.families.Poisson(), exposure=exposure).fit(
        tol=1e-14
    )
    assert np.allclose(ours.vector, np.roll(model.params, -1), atol=1e-8)
