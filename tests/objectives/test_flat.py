"""Any module as one vector of parameters and one of gradients."""

import pytest
import torch
from torch import nn

from fedcanon import FedcanonError, FlatModule


class Tied(nn.Module):
    """An embedding whose weight is also the output layer's."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.out = nn.Linear(4, 7, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens):
        return self.out(self.embed(tokens).mean(1))


def convolutional():
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 36, 2)
    )


def test_parameters_and_gradients_are_views_of_one_vector_each():
    module = convolutional()
    flat = FlatModule(module)
    inputs = torch.randn(4, 1, 8, 8)
    addresses = {name: p.data_ptr() for name, p in module.named_parameters()}
    for _ in range(3):
        flat.grad.zero_()
        module(inputs).square().mean().backward()
        flat.vector.add_(flat.grad, alpha=-0.1)
    for slot, (name, parameter) in zip(flat.layout, module.named_parameters(), strict=True):
        assert slot.name == name
        assert parameter.data_ptr() == addresses[name] == slot.view(flat.vector).data_ptr()
        assert parameter.grad.data_ptr() == slot.view(flat.grad).data_ptr()
        assert torch.equal(parameter.detach(), slot.view(flat.vector))
    assert flat.layout.size == sum(p.numel() for p in module.parameters())
    assert flat.grad.abs().sum() > 0


def test_gradients_are_those_of_an_unbound_module():
    torch.manual_seed(0)
    plain, bound = convolutional(), convolutional()
    bound.load_state_dict(plain.state_dict())
    flat = FlatModule(bound)
    inputs, targets = torch.randn(4, 1, 8, 8), torch.tensor([0, 1, 1, 0])
    for module in (plain, bound):
        nn.functional.cross_entropy(module(inputs), targets).backward()
    expected = torch.cat([p.grad.reshape(-1) for p in plain.parameters()])
    assert torch.equal(flat.grad, expected)


def test_tied_parameters_appear_once_and_stay_tied():
    module = Tied()
    flat = FlatModule(module)
    assert [slot.name for slot in flat.layout] == ["embed.weight"]
    assert flat.layout.size == 28
    flat.load(torch.full((28,), 2.0))
    assert module.out.weight.data_ptr() == module.embed.weight.data_ptr()
    assert torch.equal(module.out.weight.detach(), torch.full((7, 4), 2.0))
    module(torch.tensor([[1, 2]])).sum().backward()
    assert torch.equal(module.out.weight.grad.reshape(-1), flat.grad)


def test_frozen_parameters_stay_outside():
    module = convolutional()
    module[0].weight.requires_grad_(False)
    before = module[0].weight.clone()
    flat = FlatModule(module)
    assert "0.weight" not in {slot.name for slot in flat.layout}
    flat.vector.zero_()
    module(torch.randn(2, 1, 8, 8)).sum().backward()
    assert torch.equal(module[0].weight, before)
    assert module[0].weight.grad is None


def test_normalisation_buffers_lie_beside_the_vector_and_follow_training():
    module = convolutional()
    flat = FlatModule(module)
    assert flat.buffers.tolist() == [0, 0, 0, 1, 1, 1]
    module(torch.randn(8, 1, 8, 8) + 5)
    assert torch.equal(flat.buffers[:3], module[1].running_mean)
    assert flat.buffers[:3].abs().sum() > 0
    flat.buffers.zero_()
    assert module[1].running_var.tolist() == [0, 0, 0]
    assert module.state_dict()["1.running_var"].tolist() == [0, 0, 0]


def test_float64_and_the_device_are_the_modules_own():
    flat = FlatModule(nn.Linear(3, 2).double())
    assert flat.vector.dtype == flat.grad.dtype == torch.float64
    elsewhere = FlatModule(nn.Linear(3, 2, device="meta"))
    assert elsewhere.vector.device.type == elsewhere.grad.device.type == "meta"
    assert elsewhere.module.weight.device.type == "meta"


def test_loading_its_own_vector_copies_nothing():
    flat = FlatModule(nn.Linear(3, 2))
    version = flat.vector._version
    flat.load(flat.vector)
    assert flat.vector._version == version
    flat.load(torch.zeros(8))
    assert flat.module.weight.abs().sum() == 0


def test_a_cumulative_average_over_batches_is_refused():
    with pytest.raises(FedcanonError, match="momentum=None"):
        FlatModule(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, momentum=None)))


def test_mixed_precision_and_missing_parameters_are_refused():
    mixed = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double())
    with pytest.raises(FedcanonError, match="one precision and one device"):
        FlatModule(mixed)
    with pytest.raises(FedcanonError, match="no trainable parameter"):
        FlatModule(nn.ReLU())
