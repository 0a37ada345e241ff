"""Folders of images as a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from fedcanon.data.dataset import Dataset, Names
from fedcanon.data.own.samples import Samples, build
from fedcanon.data.sources.images import PILLOW_ERRORS
from fedcanon.errors import FedcanonError

MOST_PIXELS = 2**26
"""An image with more pixels is refused before it is unpacked."""

Picture = tuple[str, Path | bytes]
"""What an image is called in a message, and where it is or what its file holds."""


def from_images(folder: str | Path) -> Dataset:
    """Your own images: a folder with one folder for each class.

    The images must be of one size and are scaled to [0, 1]. They have one channel if all of them
    are grey, and otherwise three.

    Args:
        folder: A folder with one folder for each class; or one with a folder ``train`` that has
            these, and maybe a folder ``test`` with the test data. Without test data, a fifth of
            the images is held out.

    Raises:
        FedcanonError: There are no images, one cannot be read, or their sizes differ.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FedcanonError(f"there is no folder {folder}: give one that holds folders of images.")
    train, test = folder / "train", folder / "test"
    is_split = train.is_dir()
    return build(
        folder.name,
        _pictures("training", train if is_split else folder),
        _pictures("test", test) if is_split and test.is_dir() else None,
        prepare=read_images,
    )


def _pictures(part: str, folder: Path) -> Samples:
    """Every file below the class folders; hidden ones are left out."""
    paths = [
        path
        for path in sorted(folder.glob("*/**/*"))
        if path.is_file() and not any(p.startswith(".") for p in path.relative_to(folder).parts)
    ]
    if not paths:
        raise FedcanonError(f"{folder} has no images in folders: make a folder for each class.")
    labels = [path.relative_to(folder).parts[0] for path in paths]
    return Samples(part, [(str(path), path) for path in paths], labels)


def read_images(train: Sequence[Picture], test: Sequence[Picture]) -> tuple[Tensor, Tensor, Names]:
    """Images as float32 in [0, 1], (N, channels, height, width); grey if all of them are."""
    pictures = [*train, *test]
    decoded = [_decode(*picture) for picture in pictures]
    height, width = decoded[0].shape[:2]
    for (name, _), image in zip(pictures, decoded, strict=True):
        if image.shape[:2] != (height, width):
            raise FedcanonError(
                f"{name} has {image.shape[1]}×{image.shape[0]} pixels but {pictures[0][0]} has "
                f"{width}×{height}: bring all images to one size."
            )
    channels = max(image.shape[2] for image in decoded)
    pixels = np.empty((len(decoded), height, width, channels), dtype=np.uint8)
    for index, image in enumerate(decoded):
        pixels[index] = image  # a grey image fills all channels
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).float().contiguous().div_(255)
    return images[: len(train)], images[len(train) :], Names()


def _decode(name: str, source: Path | bytes) -> NDArray[np.uint8]:
    """Height × width × channels: one channel for a grey image, otherwise three."""
    try:
        with Image.open(BytesIO(source) if isinstance(source, bytes) else source) as image:
            if image.width * image.height > MOST_PIXELS:
                raise FedcanonError(
                    f"{name} has {image.width}×{image.height} pixels, which are too many: scale "
                    "the images down."
                )
            if image.mode[0] in "IF":
                raise FedcanonError(
                    f"{name} has more than 8 bits for each channel: convert it to 8."
                )
            pixels = np.asarray(image.convert("L" if image.mode in ("1", "L") else "RGB"))
    except UnidentifiedImageError:
        raise FedcanonError(f"{name} is not an image: take it out of the data.") from None
    except PILLOW_ERRORS as error:
        raise FedcanonError(f"{name} cannot be read: {error}.") from None
    return pixels.reshape(*pixels.shape[:2], -1)
