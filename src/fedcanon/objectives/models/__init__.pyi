# What fedcanon.objectives.models offers, by where it lives.
from .base import Model as Model
from .imported import Imported as Imported
from .registry import MODELS as MODELS
from .resnet import ResNet18 as ResNet18
from .resnet import ResNet34 as ResNet34
from .resnet import ResNet50 as ResNet50
from .resnet import ResNet101 as ResNet101
from .small import CNN as CNN
from .small import MLP as MLP
from .small import BinaryLogistic as BinaryLogistic
from .small import Linear as Linear
from .trial import require_fit as require_fit
