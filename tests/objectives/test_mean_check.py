"""Losses of networks that are no mean over samples are refused, unless they are declared so."""

import pytest
import torch
from torch import nn

from fedcanon import FedcanonError, FlatModule, ModuleObjective, Problem
from fedcanon.objectives import ModuleClients
from tests.objectives.test_whole_losses import cox_loss, survival


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
