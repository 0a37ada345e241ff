"""Networks whose layers are computed in another order: they are the same functions."""

import copy

import pytest
import torch
from torch import nn

from fedcanon.objectives.flat import FlatModule
from fedcanon.objectives.models import MODELS
from fedcanon.objectives.reordered import reordered


def gradients(module, parameters, inputs, targets):
    loss = nn.functional.cross_entropy(module(inputs), targets)
    return torch.autograd.grad(loss, parameters)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("training", [True, False])
def test_the_order_changes_neither_outputs_nor_gradients(channels, training):
    torch.manual_seed(0)
    module = MODELS["cnn"]().build((channels, 12, 12), 5).double().train(training)
    other = reordered(module)
    assert other is not module
    inputs, targets = torch.randn(7, channels, 12, 12).double(), torch.randint(5, (7,))
    assert torch.allclose(other(inputs), module(inputs), rtol=0, atol=1e-13)
    parameters = list(module.parameters())
    assert list(map(id, other.parameters())) == list(map(id, parameters))
    found, expected = (gradients(each, parameters, inputs, targets) for each in (other, module))
    for mine, its in zip(found, expected, strict=True):
        assert torch.allclose(mine, its, rtol=0, atol=1e-13)


def test_negative_entries_and_padding_of_pooling_change_nothing():
    layers = nn.Conv2d(2, 3, 3, bias=False), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)
    module = nn.Sequential(*layers).double()
    inputs = torch.randn(4, 2, 8, 8, dtype=torch.float64) - 1
    assert torch.equal(reordered(module)(inputs) == 0, module(inputs) == 0)
    assert torch.allclose(reordered(module)(inputs), module(inputs), rtol=0, atol=1e-14)


class Viewing(nn.Module):
    def forward(self, x):
        return x.view(len(x), -1)


def test_layers_that_might_not_bear_it_are_left_alone():
    block = nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2)
    hooked = nn.Sequential(*copy.deepcopy(block))
    hooked[1].register_forward_hook(lambda *_: None)
    for module in (
        nn.Sequential(*block, Viewing()),
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.AvgPool2d(2)),
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2, return_indices=True)),
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Flatten(), nn.Linear(4, 2)),
        nn.Linear(4, 2),
        hooked,
    ):
        assert reordered(module) is module


def test_a_flat_module_moves_both_orders_together():
    flat = FlatModule(MODELS["cnn"]().build((1, 8, 8), 3))
    inputs = torch.randn(2, 1, 8, 8)
    flat.vector.mul_(0.5)
    assert flat.network is not flat.module
    assert torch.allclose(flat.network(inputs), flat.module(inputs), atol=1e-6)
