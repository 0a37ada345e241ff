"""Losses of the regressor, against scikit-learn."""

import numpy as np
import pytest
from sklearn.linear_model import GammaRegressor, PoissonRegressor
from sklearn.metrics import mean_poisson_deviance

from fedcanon import FedcanonError, FederatedRegressor

RNG = np.random.default_rng(4)
X = RNG.normal(size=(240, 4))
SITES = RNG.integers(0, 4, 240)
MEANS = np.exp(0.4 * X[:, 0] - 0.3 * X[:, 1] + 0.5)
COUNTS, COSTS = RNG.poisson(MEANS), RNG.gamma(2.0, MEANS / 2)


@pytest.mark.parametrize(
    ("loss", "y", "theirs"),
    [("poisson", COUNTS, PoissonRegressor), ("gamma", COSTS, GammaRegressor)],
)
def test_a_linear_model_is_that_of_scikit_learn(loss, y, theirs):
    ours = FederatedRegressor(loss=loss, penalty="ridge", kappa=0.1, algorithm="newton", tol=1e-9)
    ours.fit(X, y, groups=SITES)
    expected = theirs(alpha=0.1, tol=1e-10, max_iter=10_000).fit(X, y)
    assert np.allclose(ours.coef_, expected.coef_, atol=1e-6)
    assert ours.intercept_ == pytest.approx(expected.intercept_, abs=1e-6)
    assert np.allclose(ours.predict(X), expected.predict(X), rtol=1e-5)


@pytest.mark.slow
def test_a_network_explains_counts_that_a_line_cannot():
    counts = RNG.poisson(np.exp(np.abs(X[:, 0])))
    settings = {"loss": "poisson", "kappa": 1e-4, "random_state": 0, "tol": 0}
    network = FederatedRegressor(hidden=(16,), rounds=60, **settings).fit(X, counts, groups=SITES)
    line = FederatedRegressor(rounds=60, **settings).fit(X, counts, groups=SITES)
    assert (network.predict(X) > 0).all()
    assert mean_poisson_deviance(counts, network.predict(X)) < 0.8 * mean_poisson_deviance(
        counts, line.predict(X)
    )


def test_responses_and_options_that_cannot_be():
    with pytest.raises(ValueError, match="poisson needs counts"):
        FederatedRegressor(loss="poisson").fit(X, -1.0 - COUNTS)
    with pytest.raises(FedcanonError, match="there is no family called 'gauss'"):
        FederatedRegressor(loss="gauss").fit(X, COUNTS)
    with pytest.raises(FedcanonError, match="delta must be above 0"):
        FederatedRegressor(loss={"name": "huber", "delta": -1.0}).fit(X, COUNTS)
