"""Every objective's gradients against finite differences and against PyTorch's own autograd."""

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.optimize import check_grad
from torch import nn

from fedcanon import FedcanonError, FlatModule, Logistic, ModuleObjective, Problem, Quadratic
from tests.problems import DTYPE, quadratics, vector

RNG = np.random.default_rng(0)
X = RNG.standard_normal((12, 5))
Y = np.where(RNG.random(12) < 0.5, -1, 1)


def module_objective(rows=None, chunk=5):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).to(DTYPE)
    targets = torch.from_numpy(RNG.integers(3, size=12))
    objective = ModuleObjective(
        FlatModule(module), nn.CrossEntropyLoss(), torch.from_numpy(X), targets, rows
    )
    objective.chunk = chunk
    return objective


OBJECTIVES = {
    "quadratic": quadratics(d=5).clients[0],
    "diagonal quadratic": Quadratic(vector(1, 2, 3), vector(0, 1, -1)),
    "dense logistic": Logistic(X, Y),
    "sparse logistic": Logistic(sparse.csr_array(np.where(X > 0, X, 0)), Y, intercept=False),
    "module": module_objective(),
    "module, some rows": module_objective(torch.tensor([0, 3, 4, 7, 11])),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_full_gradient_is_the_derivative_of_the_value(name):
    objective = OBJECTIVES[name]
    point = np.random.default_rng(1).standard_normal(objective.layout.size)
    error = check_grad(
        lambda x: objective.value(torch.from_numpy(x.copy())),
        lambda x: objective.full_gradient(torch.from_numpy(x.copy())).numpy(),
        point,
    )
    assert error < 1e-6
    value, gradient = objective.value_and_gradient(torch.from_numpy(point))
    assert value == pytest.approx(objective.value(torch.from_numpy(point)), rel=1e-13)
    whole = objective.gradient(torch.from_numpy(point), None)
    assert torch.allclose(gradient, whole, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["dense logistic", "sparse logistic", "module, some rows"])
def test_mini_batch_gradients_average_to_the_full_gradient(name):
    objective = OBJECTIVES[name]
    x = torch.from_numpy(np.random.default_rng(1).standard_normal(objective.layout.size))
    single = [objective.gradient(x, torch.tensor([i])).clone() for i in range(objective.samples)]
    assert torch.allclose(torch.stack(single).mean(0), objective.full_gradient(x), atol=1e-13)


def test_sparse_and_dense_features_agree():
    features = np.where(X > 0.5, X, 0)
    dense, csr = Logistic(features, Y), Logistic(sparse.csr_matrix(features), (Y + 1) // 2)
    x = torch.linspace(-1, 1, 6, dtype=DTYPE)
    assert dense.value(x) == pytest.approx(csr.value(x), rel=1e-14)
    assert torch.allclose(dense.full_gradient(x), csr.full_gradient(x), atol=1e-15)


def test_features_that_are_whole_numbers_have_exact_gradients():
    features = np.array([[1, 0], [0, 1], [1, 1]])
    expected = Logistic(features.astype(float), [0, 1, 1]).full_gradient(torch.zeros(3).double())
    for given in (features, features.astype(bool), sparse.csr_array(features)):
        assert torch.equal(
            Logistic(given, [0, 1, 1]).full_gradient(torch.zeros(3).double()), expected
        )


def test_logistic_keeps_the_precision_of_its_features_and_survives_large_scores():
    objective = Logistic(X.astype(np.float32) * 1e4, Y)
    x = torch.ones(6)
    assert objective.gradient(x, None).dtype == torch.float32
    assert np.isfinite(objective.value(x))
    assert objective.gradient(x, None).isfinite().all()


@pytest.mark.parametrize(
    ("features", "labels"), [(X, Y[:-1]), (X[0], Y[:1]), (X, np.arange(12)), (X, np.full(12, 2))]
)
def test_logistic_refuses_data_that_do_not_fit(features, labels):
    with pytest.raises(FedcanonError, match="logistic regression needs"):
        Logistic(features, labels)


def test_a_problem_averages_its_clients_by_weight():
    one, two = Quadratic(vector(1.0), vector(0.0)), Quadratic(vector(2.0), vector(1.0))
    problem = Problem([one, two], vector(3.0), [1.0, 3.0])
    assert problem.value(vector(3.0)) == pytest.approx(0.25 * 4.5 + 0.75 * 4.0)
    assert problem.value_and_gradient(vector(3.0))[1].tolist() == [0.25 * 3 + 0.75 * 4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], vector(0.0)), "at least one client"),
        (([Quadratic(vector(1.0), vector(0.0))], vector(0.0, 0.0)), "1 parameters"),
        (([Quadratic(vector(1.0), vector(0.0))], vector(0.0), [0.0]), "positive, finite weight"),
    ],
)
def test_a_problem_refuses_what_does_not_fit(arguments, message):
    with pytest.raises(FedcanonError, match=message):
        Problem(*arguments)
