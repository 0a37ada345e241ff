"""Random changes to a batch of images: every image has its own draw, none its own loop.

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
    """A window of the original size, anywhere in the image with 4 zeros around it."""
    n, _, height, width = images.shape
    padded = functional.pad(images, (PADDING,) * 4)
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)
    top, left = torch.randint(2 * PADDING + 1, (2, n)).to(images.device)
    return windows[torch.arange(n, device=images.device), :, top, left]


def flip(images: Tensor) -> Tensor:
    """The image or its mirror image, each with probability 1/2."""
    mirrored = torch.randint(2, (len(images), 1, 1, 1), dtype=torch.bool).to(images.device)
    return torch.where(mirrored, images.flip(3), images)


AUGMENTATIONS: dict[Name, Augmentation] = {"crop": crop, "flip": flip}
"""Every augmentation by its name in a configuration."""


def augmentations(names: Iterable[Name], shape: Shape) -> tuple[Augmentation, ...]:
    """The augmentations of these names, for inputs of this shape."""
    for name in names:
        require_images(f"the augmentation '{name}'", shape)
    return tuple(AUGMENTATIONS[name] for name in names)
