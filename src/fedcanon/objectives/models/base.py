"""The contract of a model."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import nn

from fedcanon.errors import FedcanonError

Shape = tuple[int, ...]


class Model(ABC):
    """A network yet to be sized; its options are the fields of the dataclass that it is."""

    @abstractmethod
    def build(self, shape: Shape, classes: int) -> nn.Module:
        """The network for inputs of this shape and this many classes, randomly initialised."""


def require_images(what: str, shape: Shape) -> None:
    """Refuse inputs that are not images (channels, height, width)."""
    if len(shape) != 3:
        raise FedcanonError(
            f"{what} needs images of shape (channels, height, width), but the inputs have shape "
            f"{shape}."
        )
