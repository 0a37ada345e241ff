"""Every model by its name in a configuration."""

from fedcanon.objectives.models.base import Model
from fedcanon.objectives.models.resnet import ResNet18, ResNet34, ResNet50, ResNet101
from fedcanon.objectives.models.small import CNN, MLP, BinaryLogistic, Linear

MODELS: dict[str, type[Model]] = {
    "logistic": BinaryLogistic,
    "linear": Linear,
    "mlp": MLP,
    "cnn": CNN,
    "resnet18": ResNet18,
    "resnet34": ResNet34,
    "resnet50": ResNet50,
    "resnet101": ResNet101,
}
"""Every model by its name in a configuration."""
