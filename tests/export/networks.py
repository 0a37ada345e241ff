"""Networks with weights that are zero in places."""

import torch
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

PATTERNS = ("nothing", "rows", "columns", "both", "everything")
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


def parameters(module):
    return sum(parameter.numel() for parameter in module.parameters())


def widths(module):
    """The number of units of every layer."""
    layers = (nn.Linear, nn.Conv1d, nn.Conv2d)
    return [len(layer.weight) for layer in module.modules() if isinstance(layer, layers)]


def spoil(weight, pattern, share, rng):
    """Zero rows (incoming weights of a unit), columns (outgoing ones), both, all or nothing."""

    def some(size):
        return torch.rand(size, generator=rng) < share

    with torch.no_grad():
        if pattern in ("rows", "both"):
            weight[some(len(weight))] = 0
        if pattern in ("columns", "both"):
            weight[:, some(weight.shape[1])] = -0.0  # a prox multiplies by 0
        if pattern == "everything":
            weight.zero_()


def spoilt(module, patterns, seed=0, share=0.5):
    """Random weights, biases and statistics, with zeros in the weights, in evaluation mode."""
    rng = torch.Generator().manual_seed(seed)
    for name, tensor in module.state_dict().items():
        if name.endswith("running_var"):
            tensor.uniform_(0.5, 2, generator=rng)
        elif tensor.is_floating_point() and tensor.ndim == 1:
            tensor.normal_(generator=rng)
        elif tensor.is_floating_point():
            tensor.normal_(0, tensor[0].numel() ** -0.5, generator=rng)
    weights = [p for p in module.parameters() if p.ndim > 1]
    for number, weight in enumerate(weights):
        spoil(weight, patterns[number % len(patterns)], share, rng)
    return module.eval()


def inputs(module, shape, count=5):
    rng = torch.Generator().manual_seed(1)
    return torch.randn(count, *shape, generator=rng).to(next(module.parameters()))


def difference(module, other, shape):
    """The largest difference of the outputs, relative to the largest output."""
    batch = inputs(module, shape)
    with torch.no_grad():
        expected, found = module(batch), other(batch)
    return float((found - expected).abs().max() / expected.abs().max().clamp(min=1))


def activation(name):
    return {"relu": nn.ReLU, "sigmoid": nn.Sigmoid, "gelu": nn.GELU, "none": nn.Identity}[name]()


activations = st.sampled_from(["relu", "sigmoid", "gelu", "none"])
patterns = st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=4)
seeds = st.integers(0, 2**31)
precisions = st.sampled_from([torch.float64, torch.float32])


@st.composite
def mlps(draw):
    """Linear layers, with or without biases, batch normalisation and dropout."""
    layers, width = [nn.Flatten()], 12
    for out in draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)):
        layers.append(nn.Linear(width, out, bias=draw(st.booleans())))
        if draw(st.booleans()):
            layers.append(nn.BatchNorm1d(out))
        layers += [activation(draw(activations)), nn.Dropout(0.5)]
        width = out
    layers.append(nn.Linear(width, 3, bias=draw(st.booleans())))
    return nn.Sequential(*layers)


@st.composite
def cnns(draw):
    """Convolutions on 2×9×9 images with every kind of border and pooling, then linear layers."""
    layers, channels = [], 2
    for out in draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)):
        padding = draw(st.sampled_from([0, 1, "same"]))
        mode = draw(st.sampled_from(["zeros", "reflect", "circular"]))
        bias = draw(st.booleans())
        layers.append(nn.Conv2d(channels, out, 3, padding=padding, padding_mode=mode, bias=bias))
        if draw(st.booleans()):
            layers.append(nn.BatchNorm2d(out, affine=draw(st.booleans())))
        layers.append(activation(draw(activations)))
        layers.append(
            draw(
                st.sampled_from(
                    [
                        nn.Identity(),
                        nn.MaxPool2d(3, stride=1, padding=1),
                        nn.AvgPool2d(3, stride=1, padding=1),
                        nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False),
                        nn.AvgPool2d(1, divisor_override=3),
                    ]
                )
            )
        )
        channels = out
    layers += [nn.AdaptiveAvgPool2d(2), nn.Flatten()]
    if draw(st.booleans()):
        layers.append(nn.BatchNorm1d(4 * channels))
    layers += [nn.Linear(4 * channels, 5), activation(draw(activations)), nn.Linear(5, 3)]
    return nn.Sequential(*layers)


class Functional(nn.Module):
    """A network that calls functions, as many of PyTorch's own examples do."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 3), nn.Conv2d(6, 8, 3, padding=1)
        self.fc1, self.fc2, self.fc3 = nn.Linear(72, 9), nn.Linear(9, 7), nn.Linear(7, 3)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.dropout(torch.sigmoid(self.conv2(x)), 0.5, self.training)
        x = x.view(x.size(0), -1)
        x = self.fc1(x).relu().reshape((x.shape[0], -1))
        return functional.log_softmax(self.fc3(functional.gelu(self.fc2(x))), dim=1)
