"""The contract of a model."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import nn

from fedcanon.errors import FedcanonError

Shape = tuple[int, ...]


class Model(ABC):
    """A kind of network, which ``build`` makes for the data at hand.

    Models are frozen dataclasses whose fields are their options.
    """

    @abstractmethod
    def build(self, shape: Shape, classes: int) -> nn.Module:
        """A network with random parameters.

        Args:
            shape: The shape of one input.
            classes: How many classes there are; the network gives a score for each.
        """


def require_images(what: str, shape: Shape) -> None:
    """Refuse inputs that are not images.

    Args:
        what: What needs images, as the beginning of a message.
        shape: The shape of one input.

    Raises:
        FedcanonError: It is not (channels, height, width).
    """
    if len(shape) != 3:
        raise FedcanonError(
            f"{what} needs images of shape (channels, height, width), but the inputs have shape "
            f"{shape}."
        )
