"""Random changes to a batch of images, drawn for each image by itself.

Draws come from PyTorch's global generator on the CPU, which an engine seeds for each round and
client: a run is the same on every device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from fedcanon.objectives.models.base import Shape, require_images

Augmentation = Callable[[Tensor], Tensor]
Name = Literal["crop", "flip"]

PADDING = 4


def crop(images: Tensor) -> Tensor:
    """Cut a window of the original size out of each image, padded with 4 zeros on every side.

    Args:
        images: A batch as (N, channels, height, width).
    """
    n, _, height, width = images.shape
    padded = functional.pad(images, (PADDING,) * 4)
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)
    top, left = torch.randint(2 * PADDING + 1, (2, n)).to(images.device)
    return windows[torch.arange(n, device=images.device), :, top, left]


def flip(images: Tensor) -> Tensor:
    """Mirror each image with probability 1/2.

    Args:
        images: A batch as (N, channels, height, width).
    """
    mirrored = torch.randint(2, (len(images), 1, 1, 1), dtype=torch.bool).to(images.device)
    return torch.where(mirrored, images.flip(3), images)


AUGMENTATIONS: dict[Name, Augmentation] = {"crop": crop, "flip": flip}
"""Every augmentation by its name in a configuration."""


def augmentations(names: Iterable[Name], shape: Shape) -> tuple[Augmentation, ...]:
    """The augmentations of these names.

    Args:
        names: Names of ``AUGMENTATIONS``.
        shape: The shape of one input.

    Raises:
        FedcanonError: The inputs are not images.
    """
    for name in names:
        require_images(f"the augmentation '{name}'", shape)
    return tuple(AUGMENTATIONS[name] for name in names)
