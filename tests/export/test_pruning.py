"""Pruned networks are smaller and have the same outputs."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedcanon import FedcanonError
from fedcanon.export import prune, unused_inputs
from fedcanon.objectives.models import CNN, MLP, Linear, ResNet18
from fedcanon.objectives.models.resnet import BasicBlock, Bottleneck, group_norm
from tests.export.networks import (
    PATTERNS,
    TOLERANCE,
    Functional,
    cnns,
    difference,
    mlps,
    parameters,
    patterns,
    precisions,
    seeds,
    spoilt,
    widths,
)


def pruned_alike(module, shape):
    """The pruned network, after the comparison of its outputs."""
    pruned = prune(module, shape)
    assert difference(module, pruned, shape) <= TOLERANCE[next(module.parameters()).dtype]
    again = prune(pruned, shape)
    assert widths(again) == widths(pruned)
    return pruned


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(mlps(), patterns, seeds, precisions)
def test_random_linear_layers_keep_their_outputs(module, zeros, seed, precision):
    pruned_alike(spoilt(module.to(precision), zeros, seed), (3, 4))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(cnns(), patterns, seeds, precisions)
def test_random_convolutions_keep_their_outputs(module, zeros, seed, precision):
    pruned_alike(spoilt(module.to(precision), zeros, seed), (2, 9, 9))


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(patterns, seeds, precisions, st.sampled_from([nn.BatchNorm2d, group_norm]))
def test_residual_blocks_keep_their_outputs_and_their_width(zeros, seed, precision, norm):
    module = nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1),
        BasicBlock(6, 6, 1, norm),
        BasicBlock(6, 8, 2, norm),
        Bottleneck(8, 4, 1, norm),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 3),
    ).to(precision)
    pruned = pruned_alike(spoilt(module, zeros, seed), (2, 7, 7))
    assert pruned[0].out_channels == pruned[1].conv2.out_channels == 6
    assert pruned[2].conv2.out_channels == pruned[2].downsample[0].out_channels == 8
    if norm is group_norm:
        assert parameters(pruned) == parameters(module)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize(
    ("model", "shape"), [(Linear(), (8, 8)), (MLP(), (64,)), (CNN(), (1, 8, 8))]
)
def test_our_small_models(model, shape, pattern, precision):
    module = spoilt(model.build(shape, 10).to(precision), [pattern])
    pruned = pruned_alike(module, shape)
    if pattern == "nothing" or isinstance(model, Linear):
        assert widths(pruned) == widths(module)
    elif pattern == "everything":
        assert widths(pruned) == [1] * (len(widths(module)) - 1) + [10]
    else:
        assert parameters(pruned) < 0.5 * parameters(module)


@pytest.mark.parametrize("pattern", ["rows", "both"])
def test_resnet18_with_a_small_stem(pattern):
    module = spoilt(ResNet18(stem="small").build((3, 8, 8), 10), [pattern])
    pruned = pruned_alike(module, (3, 8, 8))
    assert parameters(pruned) < 0.6 * parameters(module)
    block, before = pruned.layer2[0], module.layer2[0]
    assert block.conv1.out_channels == block.bn1.num_features == block.conv2.in_channels
    assert block.conv1.out_channels < before.conv1.out_channels
    assert block.conv2.out_channels == before.conv2.out_channels


def test_what_goes_and_what_stays_by_hand():
    module = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2, bias=False)).double()
    with torch.no_grad():
        # Neuron 0 has no input and sends ReLU(3) = 3, neuron 1 has no input and sends 0, neuron 2
        # has no output, neuron 3 works.
        module[0].weight.copy_(torch.tensor([[0, 0], [0, 0], [1, 2], [3, 4]]))
        module[0].bias.copy_(torch.tensor([3, -1, 1, 1]))
        module[2].weight.copy_(torch.tensor([[1, 1, 0, 1], [2, 1, 0, 1]]))
    pruned = prune(module, (2,))
    assert pruned[0].weight.tolist() == [[3, 4]]
    assert pruned[0].bias.tolist() == [1]
    assert pruned[2].weight.tolist() == [[1], [1]]
    assert pruned[2].bias.tolist() == [3, 6]
    assert (pruned[0].out_features, pruned[2].in_features) == (1, 1)
    assert widths(module) == [4, 2]


def test_a_neuron_without_purpose_is_found_through_several_layers():
    module = nn.Sequential(
        *(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    ).double()
    with torch.no_grad():
        module[4].weight[:, 0] = 0  # so neuron 0 of the second layer goes, and with it the only
        module[2].weight[1:, 2] = 0  # reader of neuron 2 of the first
        module[0].weight[1] = 0  # neuron 1 of the first is constant, and was the only
        module[2].weight[2, 0] = 0  # source of neuron 2 of the second
    pruned = pruned_alike(module, (3,))
    assert widths(pruned) == [1, 1, 3]


def test_one_channel_stands_for_all_constant_ones_before_a_padded_convolution():
    module = spoilt(
        nn.Sequential(nn.Conv2d(1, 6, 3), nn.Sigmoid(), nn.Conv2d(6, 2, 3, padding=1)), ["nothing"]
    ).double()
    with torch.no_grad():
        module[0].weight[:4] = 0
    assert widths(pruned_alike(module, (1, 9, 9))) == [3, 2]


@pytest.mark.parametrize("border", [{"padding": 0}, {"padding": 1, "padding_mode": "circular"}])
def test_a_bias_takes_constant_channels_over_where_no_zeros_are_padded(border):
    module = spoilt(
        nn.Sequential(nn.Conv2d(1, 6, 3), nn.Sigmoid(), nn.Conv2d(6, 2, 3, **border)), ["nothing"]
    ).double()
    with torch.no_grad():
        module[0].weight[:4] = 0
    assert widths(pruned_alike(module, (1, 9, 9))) == [2, 2]


def test_a_pruned_fully_convolutional_network_takes_other_sizes():
    conv = (nn.Conv2d(1, 6, 3, padding=1), nn.Sigmoid(), nn.Conv2d(6, 4, 3, padding=1))
    module = nn.Sequential(*conv, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)).double()
    pruned = prune(spoilt(module, ["rows"], share=0.6), (1, 1, 1))
    assert parameters(pruned) < parameters(module)
    assert difference(module, pruned, (1, 9, 7)) < 1e-12


@pytest.mark.parametrize("pattern", PATTERNS)
def test_functions_and_methods_are_followed(pattern):
    module = spoilt(Functional().double(), [pattern])
    pruned = pruned_alike(module, (1, 8, 8))
    if pattern in ("rows", "both", "everything"):
        pairs = zip(widths(pruned)[:-1], widths(module)[:-1], strict=True)
        assert all(after < before for after, before in pairs)


def test_a_channel_goes_once_all_its_pixels_are_unread():
    module = spoilt(Functional().double(), ["nothing"])
    with torch.no_grad():
        module.fc1.weight[:, 9:27] = 0  # the 3×3 pixels of channels 1 and 2
        module.fc1.weight[:, 36:44] = 0  # all but one of channel 4's
    pruned = pruned_alike(module, (1, 8, 8))
    assert widths(pruned) == [6, 6, 9, 7, 3]
    assert pruned.fc1.in_features == 54


class Odd(nn.Module):
    """Two layers, with a forward to be written below."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)


class Added(Odd):
    def forward(self, x):
        hidden = self.first(x)
        return self.second(hidden.relu()) + hidden


class Twice(Odd):
    def forward(self, x):
        return self.second(self.first(self.first(x)))


class Softmaxed(Odd):
    def forward(self, x):
        return self.second(self.first(x).softmax(1))


class Tied(Odd):
    def __init__(self):
        super().__init__()
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.first(x))


class Read(Odd):
    def forward(self, x):
        return self.second(self.first(x)) + self.first.weight.sum()


class Hooked(Odd):
    def __init__(self):
        super().__init__()
        self.first.register_forward_hook(lambda layer, given, result: result + 1)

    def forward(self, x):
        return self.second(self.first(x))


class HookedBetween(Odd):
    def __init__(self):
        super().__init__()
        self.relu = nn.ReLU()
        self.relu.register_forward_hook(lambda layer, given, result: result.softmax(1))

    def forward(self, x):
        return self.second(self.relu(self.first(x)))


class Fixed(Odd):
    def forward(self, x):
        return self.second(self.first(x).relu().view(-1, 4))


class Dropped(Odd):
    def forward(self, x):
        return self.second(nn.functional.dropout(self.first(x), 0.0, training=True))


class Counted(Odd):
    def forward(self, x):
        hidden = self.first(x)
        return self.second(hidden) / hidden.size(1)


class CountedByShape(Odd):
    def forward(self, x):
        hidden = self.first(x)
        return self.second(hidden) / hidden.shape[1]


class InPlace(Odd):
    def forward(self, x):
        hidden = self.first(x)
        hidden.sigmoid_()
        return self.second(hidden)


class Sequences(Odd):
    def forward(self, x):
        return self.second(nn.functional.max_pool1d(self.first(x), 1))


@pytest.mark.parametrize(
    "kind",
    [
        *(Added, Twice, Softmaxed, Tied, Read, Hooked, HookedBetween),
        *(Fixed, Dropped, Counted, CountedByShape, InPlace, Sequences),
    ],
)
def test_units_that_are_used_in_other_ways_stay(kind):
    module = spoilt(kind().double(), ["both"])
    assert widths(pruned_alike(module, (4,))) == [4, 4]


@pytest.mark.parametrize(
    "middle",
    [
        nn.BatchNorm2d(4, track_running_stats=False),
        nn.InstanceNorm2d(4),
        nn.Conv2d(4, 4, 1, groups=2),
        nn.Softmax(1),
        nn.MaxPool2d(2, return_indices=False, ceil_mode=True),
    ],
)
def test_layers_that_mix_units_or_samples_are_left_alone(middle):
    module = nn.Sequential(nn.Conv2d(1, 4, 3), middle, nn.Conv2d(4, 2, 2))
    before = widths(module)
    pruned = pruned_alike(spoilt(module, ["rows"]).double(), (1, 9, 9))
    assert (widths(pruned) == before) is not isinstance(middle, nn.MaxPool2d)


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        return self.layer(x) if x.sum() > 0 else x


@pytest.mark.slow
def test_a_network_that_cannot_be_followed_is_refused_in_a_sentence():
    with pytest.raises(FedcanonError, match=r"torch.fx cannot follow the network: symbolically"):
        prune(Branching(), (2,))
    with pytest.raises(FedcanonError, match=r"cannot follow the network: mat1 and mat2 shapes"):
        prune(nn.Linear(2, 2), (3,))


def test_a_layer_with_a_forward_of_its_own_is_noticed():
    module = spoilt(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), ["rows"])
    first = module[0]
    first.forward = lambda x: nn.functional.linear(x, first.weight, first.bias) + 1
    with pytest.raises(FedcanonError, match="the pruned network"):
        prune(module, (4,))


def test_unused_inputs_are_reported():
    module = MLP().build((2, 3), 3)
    assert unused_inputs(module, (2, 3)) == []
    with torch.no_grad():
        module[1].weight[:, [1, 4]] = 0
    assert unused_inputs(module, (2, 3)) == [1, 4]
    assert unused_inputs(nn.Linear(2, 1), (2,)) == []
    images = spoilt(nn.Sequential(nn.Conv2d(3, 2, 1), nn.Flatten(), nn.Linear(2, 2)), ["nothing"])
    with torch.no_grad():
        images[0].weight[:, 2] = 0
    assert unused_inputs(images, (3, 1, 1)) == [2]
    assert unused_inputs(Softmaxed(), (4,)) == []
    assert unused_inputs(nn.Sequential(nn.Softmax(1), nn.Linear(2, 2)), (2,)) == []
