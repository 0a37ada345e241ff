"""Networks of a few layers."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from math import prod

from torch import nn

from fedcanon.objectives.models.base import Model, Shape, require_images


@dataclass(frozen=True)
class BinaryLogistic(Model):
    """Binary logistic regression, trained by a gradient in closed form."""

    def build(self, shape: Shape, classes: int) -> nn.Module:
        return nn.Linear(prod(shape), 1)


@dataclass(frozen=True)
class Linear(Model):
    """One linear layer: multinomial logistic regression."""

    def build(self, shape: Shape, classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), classes))


@dataclass(frozen=True)
class MLP(Model):
    """Three linear layers with ReLU, 200 neurons in each hidden one."""

    def build(self, shape: Shape, classes: int) -> nn.Module:
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(prod(shape), 200),
            nn.ReLU(),
            nn.Linear(200, 200),
            nn.ReLU(),
            nn.Linear(200, classes),
        )


@dataclass(frozen=True)
class CNN(Model):
    """Two 5×5 convolutions (32 and 64 channels) and 512 neurons, for images.

    Each convolution keeps the size of the image and is followed by ReLU and 2×2 max-pooling. On
    MNIST it has the 1,663,370 parameters of the network of McMahan et al. (2017).
    """

    def build(self, shape: Shape, classes: int) -> nn.Module:
        require_images("the model 'cnn'", shape)
        channels, height, width = shape
        return nn.Sequential(
            OrderedDict(
                conv1=nn.Conv2d(channels, 32, 5, padding=2),
                relu1=nn.ReLU(),
                pool1=nn.MaxPool2d(2),
                conv2=nn.Conv2d(32, 64, 5, padding=2),
                relu2=nn.ReLU(),
                pool2=nn.MaxPool2d(2),
                flatten=nn.Flatten(),
                fc1=nn.Linear(64 * (height // 4) * (width // 4), 512),
                relu3=nn.ReLU(),
                fc2=nn.Linear(512, classes),
            )
        )
