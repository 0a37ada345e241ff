"""Residual networks (He et al., 2016), with the parameter names of torchvision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcanon.objectives.models.base import Model, Shape, require_images

Norm = Callable[[int], nn.Module]
Stem = Literal["imagenet", "small"]


class Convolution(nn.Conv2d):
    """A convolution without bias, of odd size and padded by half of it.

    Only the centre of the kernel meets an image of one pixel, as small images are in the last
    layers; the derivatives by its other entries are 0. That is one product of matrices.
    """

    def forward(self, x: Tensor) -> Tensor:
        """The convolution of a batch of images."""
        if x.shape[2:] != (1, 1):
            return super().forward(x)
        kernels = self.weight.flatten(2)
        centre = kernels[:, :, kernels.shape[2] // 2].contiguous()
        return functional.linear(x.flatten(1), centre)[:, :, None, None]


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and a shortcut.

    Args:
        channels: The channels of its input.
        width: The channels of the convolutions; the output has ``expansion`` times as many.
        stride: The factor by which it makes images smaller.
        norm: Makes a normalisation layer for a number of channels.
    """

    expansion = 1

    def __init__(self, channels: int, width: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = _conv(channels, width, 3, stride)
        self.bn1 = norm(width)
        self.conv2 = _conv(width, width, 3)
        self.bn2 = norm(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(channels, width, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        """Shortcut plus residual."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return self.relu(out + self.downsample(x))  # type: ignore[no-any-return]


class Bottleneck(nn.Module):
    """A 3×3 convolution (with the stride) between two 1×1 convolutions, and a shortcut.

    Args:
        channels: The channels of its input.
        width: The channels of the convolutions; the output has ``expansion`` times as many.
        stride: The factor by which it makes images smaller.
        norm: Makes a normalisation layer for a number of channels.
    """

    expansion = 4

    def __init__(self, channels: int, width: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = _conv(channels, width, 1)
        self.bn1 = norm(width)
        self.conv2 = _conv(width, width, 3, stride)
        self.bn2 = norm(width)
        self.conv3 = _conv(width, self.expansion * width, 1)
        self.bn3 = norm(self.expansion * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(channels, self.expansion * width, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        """Shortcut plus residual."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return self.relu(out + self.downsample(x))  # type: ignore[no-any-return]


Block = type[BasicBlock] | type[Bottleneck]
Depths = tuple[int, int, int, int]


class ResidualNetwork(nn.Module):
    """A stem, four layers of blocks, the mean over pixels, and one linear layer.

    Args:
        block: The kind of block.
        depths: How many blocks each layer has.
        channels: The channels of an image.
        classes: How many classes there are.
        stem: The first convolution, as in ``ResNet``.
        norm: Makes a normalisation layer for a number of channels.
    """

    def __init__(
        self, block: Block, depths: Depths, channels: int, classes: int, stem: Stem, norm: Norm
    ) -> None:
        super().__init__()
        large = stem == "imagenet"
        self.conv1 = _conv(channels, 64, 7, stride=2) if large else _conv(channels, 64, 3)
        self.bn1 = norm(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1) if large else nn.Identity()
        self.layer1 = _layer(block, depths[0], 64, 64, 1, norm)
        self.layer2 = _layer(block, depths[1], 64 * block.expansion, 128, 2, norm)
        self.layer3 = _layer(block, depths[2], 128 * block.expansion, 256, 2, norm)
        self.layer4 = _layer(block, depths[3], 256 * block.expansion, 512, 2, norm)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512 * block.expansion, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores of a batch of images."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))  # type: ignore[no-any-return]


def _conv(channels: int, out: int, size: int, stride: int = 1) -> nn.Conv2d:
    """A convolution without bias, initialised after Kaiming He for the ReLU behind it."""
    conv = Convolution(channels, out, size, stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return conv


def _shortcut(channels: int, out: int, stride: int, norm: Norm) -> nn.Module:
    """The identity, or a 1×1 convolution where the shape changes."""
    if stride == 1 and channels == out:
        return nn.Identity()
    return nn.Sequential(_conv(channels, out, 1, stride), norm(out))


def _layer(
    block: Block, depth: int, channels: int, width: int, stride: int, norm: Norm
) -> nn.Sequential:
    first = block(channels, width, stride, norm)
    rest = [block(block.expansion * width, width, 1, norm) for _ in range(depth - 1)]
    return nn.Sequential(first, *rest)


def group_norm(channels: int) -> nn.Module:
    """Group normalisation in 32 groups, or in as many as there are channels if these are fewer."""
    return nn.GroupNorm(min(32, channels), channels)


@dataclass(frozen=True)
class ResNet(Model):
    """A residual network.

    Args:
        stem: "imagenet" is a 7×7 convolution of stride 2 and max-pooling, which makes images four
            times smaller; "small" is a 3×3 convolution, which keeps the size of small ones.
        norm: The normalisation, "batch" or "group". Group normalisation has no running statistics,
            so that nothing but parameters travels.
    """

    stem: Stem = "imagenet"
    norm: Literal["batch", "group"] = "batch"

    block: ClassVar[Block]
    depths: ClassVar[Depths]

    def build(self, shape: Shape, classes: int) -> nn.Module:
        require_images("a ResNet", shape)
        norm = nn.BatchNorm2d if self.norm == "batch" else group_norm
        return ResidualNetwork(self.block, self.depths, shape[0], classes, self.stem, norm)


class ResNet18(ResNet):
    """ResNet-18; stem "imagenet" or "small", norm "batch" or "group"."""

    block, depths = BasicBlock, (2, 2, 2, 2)


class ResNet34(ResNet):
    """ResNet-34, with the same options."""

    block, depths = BasicBlock, (3, 4, 6, 3)


class ResNet50(ResNet):
    """ResNet-50, with the same options."""

    block, depths = Bottleneck, (3, 4, 6, 3)


class ResNet101(ResNet):
    """ResNet-101, with the same options."""

    block, depths = Bottleneck, (3, 4, 23, 3)
