"""Hessians against automatic and numerical differentiation, and how they travel."""

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import nn
from torch.nn import functional

from fedcanon import FedcanonError, FlatModule, Logistic, ModuleObjective, Quadratic
from fedcanon.expansion import expansion_length, pack_expansion, unpack_expansion
from fedcanon.objectives.least_squares import LeastSquares
from fedcanon.objectives.remote import Remote

RNG = np.random.default_rng(0)
X = RNG.standard_normal((20, 4)) * (RNG.random((20, 4)) < 0.7)
Y = RNG.integers(0, 2, 20)


def by_differences(objective, x, width=1e-5):
    columns = []
    for direction in torch.eye(len(x), dtype=x.dtype):
        ends = [objective.full_gradient(x + side * width * direction) for side in (1, -1)]
        columns.append((ends[0] - ends[1]) / (2 * width))
    return torch.stack(columns)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("kind", [Logistic, LeastSquares])
def test_linear_models_in_closed_form(kind, form, intercept):
    objective = kind(form(X), Y, intercept=intercept)
    x = torch.from_numpy(RNG.standard_normal(objective.layout.size))
    found = objective.hessian(x)
    assert objective.has_hessian
    assert torch.allclose(found, by_differences(objective, x), rtol=0, atol=1e-9)
    assert torch.allclose(found, found.T, rtol=0, atol=1e-16)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_precision_is_that_of_the_features(dtype):
    objective = Logistic(sparse.csr_array(X.astype(dtype)), Y)
    x = torch.zeros(5, dtype=getattr(torch, dtype.__name__))
    assert objective.hessian(x).dtype == x.dtype


def half_squared(outputs, targets):
    return (outputs - functional.one_hot(targets, 3)).square().sum(1).mean() / 2


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), functional.cross_entropy, half_squared])
def test_a_single_layer_under_any_loss(loss, bias):
    torch.manual_seed(0)
    inputs = torch.randn(15, 2, 2, dtype=torch.float64)
    targets = torch.randint(0, 3, (15,))
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 3, bias=bias)).double()
    objective = ModuleObjective(FlatModule(module), loss, inputs, targets, torch.arange(2, 15))
    x = torch.randn(objective.layout.size, dtype=torch.float64)

    def value(vector):
        views = objective.layout.views(vector)
        outputs = torch.func.functional_call(module, views, (inputs[2:],))
        return loss(outputs, targets[2:])

    expected = torch.autograd.functional.hessian(value, x)
    assert objective.has_hessian
    assert torch.allclose(objective.hessian(x), expected, rtol=0, atol=1e-14)


class Squashed(nn.Module):
    """One linear layer, but not a linear model."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x).tanh()


def frozen():
    layer = nn.Linear(4, 3)
    layer.bias.requires_grad_(False)
    return layer


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)),
        nn.Sequential(nn.Linear(4, 3), nn.Tanh()),
        Squashed(),
        frozen(),
    ],
    ids=["hidden layer", "activation", "own class", "frozen"],
)
def test_other_networks_have_none(module):
    targets = torch.zeros(2, dtype=torch.int64)
    objective = ModuleObjective(
        FlatModule(module), nn.CrossEntropyLoss(), torch.ones(2, 4), targets
    )
    assert not objective.has_hessian
    with pytest.raises(FedcanonError, match=r"linear models only .* use FedCanon\+"):
        objective.hessian(torch.zeros(objective.layout.size))


def test_quadratics_and_clients_elsewhere():
    A = torch.tensor([[2.0, 1.0], [1.0, 3.0]])
    full, diagonal = Quadratic(A, torch.zeros(2)), Quadratic(torch.ones(2), torch.zeros(2))
    assert torch.equal(full.hessian(torch.ones(2)), A)
    assert torch.equal(diagonal.hessian(torch.ones(2)), torch.eye(2))
    remote = Remote(full, 7)
    assert remote.has_hessian
    with pytest.raises(FedcanonError, match="only the client itself"):
        remote.hessian(torch.ones(2))


@pytest.mark.parametrize("d", [1, 2, 5])
def test_an_expansion_arrives_as_it_was(d):
    gradient, matrix = torch.randn(d), torch.randn(d, d)
    packed = pack_expansion(0.5, gradient, matrix + matrix.T)
    assert packed.shape == (expansion_length(d),) == (1 + d + d * (d + 1) // 2,)
    value, again, hessian = unpack_expansion(packed, d)
    assert value == 0.5
    assert torch.equal(again, gradient)
    assert torch.equal(hessian, matrix + matrix.T)
