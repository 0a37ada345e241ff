"""Losses of networks that are no mean over samples."""

import numpy as np
import pytest
import torch
from torch import nn

from fedcanon import FedcanonError, FedCanonPlus, Federation, FlatModule, ModuleObjective, Problem
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


def test_what_needs_single_samples_is_refused_for_declared_losses():
    ours, _, x = network(whole=True)
    with pytest.raises(FedcanonError, match="no mini-batches"):
        ours.gradient(x, torch.arange(3))
    with pytest.raises(FedcanonError, match="single records"):
        ours.require_records()
    with pytest.raises(FedcanonError, match="Hessian"):
        ours.hessian(x)
    assert not ours.has_hessian
