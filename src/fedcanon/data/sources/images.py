"""From pictures to tensors."""

from __future__ import annotations

import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from fedcanon.data.dataset import Split
from fedcanon.data.sources.files import Entry, damaged

PILLOW_ERRORS = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)
"""What Pillow raises for a damaged picture, or one that is made to fill the memory."""

Pixels = NDArray[np.uint8]

Channels = float | tuple[float, ...]
"""A number for each channel, or one for all of them."""


def standardise_(images: Tensor, mean: Channels, std: Channels) -> Tensor:
    """Subtract the mean of its channel from each pixel and divide by the deviation, in place.

    The numbers belong to the dataset and not to the samples at hand, so that a subset has the same
    pixels as the whole.

    Args:
        images: Brightness in [0, 1], as (N, channels, height, width).
        mean: The mean brightness of each channel.
        std: The standard deviation of each channel.
    """
    shape = (-1, 1, 1)
    return images.sub_(torch.tensor(mean).view(shape)).div_(torch.tensor(std).view(shape))


def normalise(pixels: Pixels, mean: Channels, std: Channels) -> Tensor:
    """(N, channels, height, width) bytes as float32: brightness in [0, 1], standardised."""
    return standardise_(torch.from_numpy(pixels).float().div_(255), mean, std)


def split_of_pictures(
    labelled: Sequence[tuple[int, Entry]], side: int, mean: Channels, std: Channels
) -> Split:
    """Samples from pictures in files.

    Args:
        labelled: The class and the file of each picture.
        side: The width and height that every picture must have.
        mean: The mean brightness of each channel; see ``standardise_``.
        std: The standard deviation of each channel.

    Raises:
        FedcanonError: A picture is damaged or of another size.
    """
    pixels = _decoded([entry for _, entry in labelled], side)
    labels = torch.tensor([label for label, _ in labelled], dtype=torch.int64)
    return Split(normalise(pixels, mean, std), labels)


def _decoded(entries: Sequence[Entry], side: int) -> Pixels:
    """Square JPEG or PNG pictures as (N, 3, side, side) bytes; grey ones become RGB."""
    pixels = np.empty((len(entries), 3, side, side), np.uint8)

    def decode(index: int) -> None:
        entry = entries[index]
        try:
            picture = Image.open(io.BytesIO(entry.content))
            if picture.size != (side, side):  # before it is unpacked
                raise damaged(entry.where, f"it has {picture.size} pixels, not {(side, side)}")
            pixels[index] = np.asarray(picture.convert("RGB")).transpose(2, 0, 1)
        except PILLOW_ERRORS as problem:
            raise damaged(entry.where, problem) from problem

    with ThreadPoolExecutor() as pool:
        for _ in pool.map(decode, range(len(entries))):
            pass  # raises what decode raised
    return pixels
