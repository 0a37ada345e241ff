"""Least squares: gradients, and the module that comes out."""

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.optimize import check_grad

from fedcanon import FedcanonError
from fedcanon.objectives.least_squares import LeastSquares

RNG = np.random.default_rng(0)
X, Y = np.maximum(RNG.standard_normal((12, 5)), 0), RNG.standard_normal(12)
OBJECTIVES = {
    "dense": LeastSquares(X, Y),
    "sparse": LeastSquares(sparse.coo_matrix(X), Y),
    "without intercept": LeastSquares(X, Y, intercept=False),
}


@pytest.fixture(params=OBJECTIVES)
def objective(request):
    return OBJECTIVES[request.param]


@pytest.fixture
def point(objective):
    return torch.from_numpy(np.random.default_rng(1).standard_normal(objective.layout.size))


def test_the_value_is_half_the_mean_square(objective, point):
    residual = X @ point[:5].numpy() + (point[5].item() if len(point) == 6 else 0) - Y
    assert objective.value(point) == pytest.approx(np.mean(residual**2) / 2, rel=1e-13)


def test_gradients_are_derivatives_and_mini_batches_average_to_them(objective, point):
    error = check_grad(
        lambda x: objective.value(torch.from_numpy(x.copy())),
        lambda x: objective.full_gradient(torch.from_numpy(x.copy())).numpy(),
        point.numpy(),
    )
    assert error < 1e-6
    value, gradient = objective.value_and_gradient(point)
    assert value == objective.value(point)
    single = [objective.gradient(point, torch.tensor([i])) for i in range(objective.samples)]
    assert torch.allclose(torch.stack(single).mean(0), gradient, atol=1e-13)


def test_the_module_predicts(objective, point):
    module = objective.module(point, torch.empty(0))
    residual = module(torch.from_numpy(X))[:, 0].detach().numpy() - Y
    assert np.mean(residual**2) / 2 == pytest.approx(objective.value(point), rel=1e-13)


def test_precision_is_that_of_the_features():
    objective = LeastSquares(X.astype(np.float32), Y)
    assert objective.gradient(torch.zeros(6), None).dtype == torch.float32
    whole = LeastSquares(np.ones((3, 1), dtype=int), [1, 2, 3])
    assert whole.gradient(torch.zeros(2, dtype=torch.float64), None).dtype == torch.float64


@pytest.mark.parametrize(("features", "targets"), [(X, Y[:3]), (X[0], Y), (X, X)])
def test_shapes_that_do_not_fit_are_refused(features, targets):
    with pytest.raises(FedcanonError, match="m×d feature matrix and m targets"):
        LeastSquares(features, targets)
