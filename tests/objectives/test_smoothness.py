"""Estimates of the smoothness, beside exact Hessians."""

import math
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedcanon import FedcanonError, FlatModule, Logistic, ModuleObjective, Problem
from fedcanon.objectives import Quadratic, curvature, smoothness
from fedcanon.objectives.lipschitz import MOST_SAMPLES
from tests.problems import logistics, quadratics
from tests.problems import smoothness as exact_smoothness


def test_power_iteration_finds_the_smoothness():
    rng = np.random.default_rng(0)
    for problem in (quadratics(), logistics()):
        assert smoothness(problem, rng) == pytest.approx(exact_smoothness(problem), rel=1e-2)


@pytest.mark.parametrize("scale", [1.0, 1e2, 1e4])
def test_power_iteration_finds_large_curvature_in_float32(scale):
    X = (np.random.default_rng(0).standard_normal((50, 6)) * scale).astype(np.float32)
    objective = Logistic(X, np.arange(50) % 2, intercept=False)
    largest = float(np.linalg.eigvalsh(X.astype(float).T @ X / (4 * len(X))).max())
    found = curvature(objective, torch.zeros(6), np.random.default_rng(0))
    assert found == pytest.approx(largest, rel=0.05)


def test_power_iteration_agrees_with_the_hessian_of_a_network():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    inputs, targets = torch.randn(20, 3).double(), torch.arange(20) % 2
    flat = FlatModule(module)
    objective = ModuleObjective(flat, nn.CrossEntropyLoss(), inputs, targets)

    def loss(vector):
        outputs = torch.func.functional_call(module, flat.layout.views(vector), (inputs,))
        return nn.functional.cross_entropy(outputs, targets)

    hessian = torch.autograd.functional.hessian(loss, flat.vector.clone())
    largest = float(torch.linalg.eigvalsh(hessian).abs().max())
    found = curvature(objective, flat.vector.clone(), np.random.default_rng(0), 1000, 1e-8)
    assert found == pytest.approx(largest, rel=1e-3)


class Rounded(Quadratic):
    """Counts its gradients, which have errors that change from one to the next."""

    asked: ClassVar[list[Tensor]] = []

    def value_and_gradient(self, x):
        self.asked.append(x)
        value, gradient = super().value_and_gradient(x)
        return value, gradient * (1 + 1e-6 * math.sin(len(self.asked)))


def test_power_iteration_ends_where_rounding_errors_are_larger_than_its_progress():
    objective = Rounded(torch.tensor([1.0, 2.0, 9.0, 10.0]), torch.ones(4))
    found = curvature(objective, torch.zeros(4), np.random.default_rng(0), tolerance=1e-7)
    assert found == pytest.approx(10, rel=0.05)
    assert len(objective.asked) < 100


class Counted(ModuleObjective):
    """Notes over how many samples its gradients are."""

    seen = 0

    def value_and_gradient(self, x):
        Counted.seen = max(Counted.seen, self.samples)
        return super().value_and_gradient(x)


def test_the_smoothness_of_a_network_looks_at_some_of_many_samples():
    torch.manual_seed(0)
    flat = FlatModule(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)))
    inputs, targets = torch.randn(6000, 6), torch.randint(3, (6000,))
    rows = torch.arange(6000).view(2, -1)
    parts = (flat, nn.CrossEntropyLoss(), inputs, targets)
    exact = max(
        curvature(ModuleObjective(*parts, own), flat.vector.clone(), np.random.default_rng(0))
        for own in rows
    )
    problem = Problem([Counted(*parts, own) for own in rows], flat.vector)
    assert smoothness(problem, np.random.default_rng(0)) == pytest.approx(exact, rel=0.15)
    assert Counted.seen == MOST_SAMPLES
    same = problem.clients[0].over_some(3000, np.random.default_rng(0))
    assert same is problem.clients[0]


def test_a_flat_objective_has_no_estimate():
    problem = quadratics(clients=1, d=2)
    problem.clients[0].A.zero_()
    with pytest.raises(FedcanonError, match="could not be estimated"):
        smoothness(problem, np.random.default_rng(0))
    assert math.isfinite(curvature(problem, problem.start, np.random.default_rng(0)))
