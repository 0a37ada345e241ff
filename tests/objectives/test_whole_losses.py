"""Losses of networks that are no mean over samples."""

import numpy as np
import pytest
import torch
from torch import nn

from fedcanon import FedcanonError, FedCanonPlus, Federation, FlatModule, ModuleObjective, Problem
from fedcanon.objectives import ModuleClients
from fedcanon.objectives.cox import Cox
from fedcanon.penalties import L1

SAMPLES = 529


def cox_loss(outputs, targets):
    """Cox's partial likelihood, for samples in the order of falling times; targets are events."""
    scores = outputs[:, 0]
    return -(targets * (scores - scores.logcumsumexp(0))).sum() / len(targets)


def survival(samples=SAMPLES, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(samples, 4))
    times = np.sort(rng.exponential(np.exp(features[:, 0])))[::-1].copy()
    events = (rng.random(samples) < 0.6).astype("float64")
    return features, times, events


def network(**settings):
    features, times, events = survival()
    torch.manual_seed(0)
    flat = FlatModule(nn.Linear(4, 1, bias=False).double())
    tensors = (torch.from_numpy(features), torch.from_numpy(events))
    objective = ModuleObjective(flat, cox_loss, *tensors, **settings)
    return objective, Cox(features, times, events, ties="breslow"), flat.vector.clone()


def test_a_declared_loss_is_measured_on_all_samples_at_once():
    ours, exact, x = network(whole=True)
    value, gradient = ours.value_and_gradient(x)
    assert ours.samples > 2 * ours.chunk
    assert ours.value(x) == value == pytest.approx(exact.value(x), rel=1e-12)
    torch.testing.assert_close(gradient, exact.full_gradient(x))
    torch.testing.assert_close(ours.gradient(x, None), gradient)
    assert ours.outputs(x).shape == (SAMPLES, 1)


def test_a_federation_of_declared_losses_reaches_the_solution_of_the_exact_one():
    ours, exact, _ = network(whole=True)
    found = []
    for client in (ours, exact):
        problem = Problem([client], torch.zeros(4, dtype=torch.float64))
        federation = Federation(problem, FedCanonPlus(0.5, 0.1, 5), L1(0.01))
        for _ in range(60):
            federation.step()
        found.append(federation.model)
    torch.testing.assert_close(*found)
    assert problem.value_and_gradient(found[0])[1].abs().max() < 0.02


@pytest.mark.parametrize("samples", [2, 7, 256, 529])
def test_an_undeclared_loss_is_refused_before_anything_is_trained(samples):
    features, _, events = survival(samples)
    events[:2] = 1
    flat = FlatModule(nn.Linear(4, 1).double())
    tensors = (torch.from_numpy(features), torch.from_numpy(events))
    small = ModuleObjective(flat, nn.MSELoss(), tensors[0][:1], tensors[1][:1, None])
    words = r"'cox_loss' is not the mean over samples.*whole=True"
    with pytest.raises(FedcanonError, match=words):
        Problem([small, ModuleObjective(flat, cox_loss, *tensors)], flat.vector)
    with pytest.raises(FedcanonError, match=words):
        Problem(ModuleClients(flat, cox_loss, *tensors, [samples - 1, 1]), flat.vector)
    whole = ModuleClients(flat, cox_loss, *tensors, [samples - 1, 1], whole=True)
    assert Problem(whole, flat.vector).clients[0].whole


def test_a_loss_whose_gradient_alone_is_none_of_a_mean_is_refused():
    """Weighted classes at scores of 0: all losses are log 2, but their gradients weigh anew."""
    flat = FlatModule(nn.Linear(3, 2))
    nn.init.zeros_(flat.vector)
    weighted = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 9.0]))
    labels = (torch.arange(40) % 5 == 0).long()
    client = ModuleObjective(flat, weighted, torch.randn(40, 3), labels.sort().values)
    with pytest.raises(FedcanonError, match="its gradient on 40 samples is not that on average"):
        Problem([client], flat.vector)


@pytest.mark.parametrize(
    "loss",
    [nn.CrossEntropyLoss(), nn.CrossEntropyLoss(label_smoothing=0.1), nn.MultiMarginLoss()],
)
def test_means_over_samples_are_taken(loss):
    torch.manual_seed(0)
    flat = FlatModule(nn.Sequential(nn.Linear(3, 8), nn.Dropout(), nn.Linear(8, 4)))
    before = flat.vector.clone()
    inputs, labels = torch.randn(700, 3), torch.randint(4, (700,))
    Problem([ModuleObjective(flat, loss, inputs, labels)], torch.zeros_like(before))
    assert torch.equal(flat.vector, before)


def test_what_needs_single_samples_is_refused_for_declared_losses():
    ours, _, x = network(whole=True)
    with pytest.raises(FedcanonError, match="no mini-batches"):
        ours.gradient(x, torch.arange(3))
    with pytest.raises(FedcanonError, match="single records"):
        ours.require_records()
    with pytest.raises(FedcanonError, match="Hessian"):
        ours.hessian(x)
    assert not ours.has_hessian
