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

from fedcanon.data.sources.files import Entry, damaged

Pixels = NDArray[np.uint8]


def normalise(pixels: Pixels, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """(N, C, H, W) bytes as float32: brightness in [0, 1], less the mean of its channel, over std.

    The numbers belong to the dataset and not to the samples at hand, so that a subset has the same
    pixels as the whole.
    """
    shape = (-1, 1, 1)
    inputs = torch.from_numpy(pixels).float().div_(255)
    return inputs.sub_(torch.tensor(mean).view(shape)).div_(torch.tensor(std).view(shape))


def decode_pictures(entries: Sequence[Entry], side: int) -> Pixels:
    """Square JPEG or PNG pictures as (N, 3, side, side) bytes; grey ones become RGB."""
    pixels = np.empty((len(entries), 3, side, side), np.uint8)

    def decode(index: int) -> None:
        entry = entries[index]
        try:
            picture = Image.open(io.BytesIO(entry.content)).convert("RGB")
        except (OSError, SyntaxError, ValueError) as problem:  # what Pillow raises
            raise damaged(entry.where, problem) from problem
        if picture.size != (side, side):
            raise damaged(entry.where, f"it has {picture.size} pixels, not {(side, side)}")
        pixels[index] = np.asarray(picture).transpose(2, 0, 1)

    with ThreadPoolExecutor() as pool:
        for _ in pool.map(decode, range(len(entries))):
            pass  # raises what decode raised
    return pixels
