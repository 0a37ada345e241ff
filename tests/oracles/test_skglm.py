"""MCP and SCAD logistic regression (even and odd digits) over clients against skglm."""

import numpy as np
import pytest
import skglm
import torch
from skglm.solvers import AndersonCD
from sklearn.datasets import load_digits

from fedcanon import Logistic
from fedcanon.penalties import MCP, SCAD
from tests.oracles.federations import solve, spread

pytestmark = pytest.mark.slow
KAPPA = 0.03
CASES = {
    "mcp": (MCP(KAPPA, 5.0, "lambda"), skglm.penalties.MCPenalty(KAPPA, 5.0)),
    "scad": (SCAD(KAPPA, 6.0, "lambda"), skglm.penalties.SCAD(KAPPA, 6.0)),
}


@pytest.fixture(scope="module")
def data():
    X, y = load_digits(return_X_y=True)
    return np.asfortranarray(X / 16), np.where(y % 2, 1.0, -1.0)


@pytest.mark.parametrize("name", CASES)
def test_our_solution_is_stationary_for_skglm(data, name):
    X, y = data
    ours, theirs = CASES[name]
    model = solve(spread(X, y, intercept=False), ours, speed=11, K=20, tolerance=1e-8, rounds=3000)
    gradient = Logistic(X, y, intercept=False).full_gradient(model).numpy()
    distance = theirs.subdiff_distance(model.numpy(), gradient, np.arange(len(model)))
    assert np.abs(distance).max() < 1e-6
    assert 0 < int((model == 0).sum()) < len(model)


@pytest.mark.parametrize("name", CASES)
def test_we_return_to_skglms_solution(data, name):
    X, y = data
    ours, theirs = CASES[name]
    solver = AndersonCD(fit_intercept=False, tol=1e-12, max_iter=1000)
    oracle = skglm.GeneralizedLinearEstimator(skglm.datafits.Logistic(), theirs, solver).fit(X, y)
    solution = torch.from_numpy(np.ascontiguousarray(oracle.coef_.ravel()))
    noise = 1e-3 * torch.randn(
        len(solution), generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    model = solve(
        spread(X, y, intercept=False),
        ours,
        speed=11,
        K=20,
        tolerance=1e-9,
        rounds=3000,
        start=solution + noise,
    )
    assert (model - solution).abs().max() < 1e-6
