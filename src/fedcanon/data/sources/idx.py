"""MNIST and Fashion-MNIST in IDX files: a header with magic number and shape, then bytes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from pathlib import Path

import numpy as np
import torch

from fedcanon.data.dataset import Dataset, Split
from fedcanon.data.sources.checks import check_labels, check_official, subset_note
from fedcanon.data.sources.files import damaged, find, read
from fedcanon.data.sources.images import Pixels, normalise
from fedcanon.data.sources.source import Source

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
COUNTS = (60_000, 60_000, 10_000, 10_000)
MNIST_MEAN, MNIST_STD = 0.1307, 0.3081
FASHION_MEAN, FASHION_STD = 0.2860, 0.3530
SIDE = 28
CLASSES = 10


def decode(
    folder: Path, files: Sequence[Path], name: str, mean: float, std: float, official: Sequence[str]
) -> Dataset:
    """The dataset of four files.

    Args:
        folder: Their folder.
        files: The files, in the order of ``FILES``.
        name: The name of the dataset.
        mean: The mean brightness of its training images.
        std: The standard deviation of the same.
        official: The SHA-256 of each complete file, unpacked.
    """
    arrays = list(map(_read, files, COUNTS, official))

    def split(first: int) -> Split:
        images, labels = arrays[first : first + 2]
        if len(images) != len(labels):
            raise damaged(files[first + 1], f"it has {len(labels)} labels for {len(images)} images")
        check_labels(labels, CLASSES, files[first + 1])
        inputs = normalise(images[:, None], mean, std)
        return Split(inputs, torch.from_numpy(labels.astype(np.int64)))

    train, test = split(0), split(2)
    note = subset_note(train, test, (COUNTS[0], COUNTS[2]))
    return Dataset(name, train, test, CLASSES, note)


def _read(path: Path, count: int, sha256: str) -> Pixels:
    """The images or the labels of a file; its name says which they are."""
    content = read(path)
    dimensions = 3 if "idx3" in path.name else 1
    start = 4 + 4 * dimensions
    if content[:4] != bytes([0, 0, 8, dimensions]) or len(content) < start:
        raise damaged(path, f"it does not begin like an IDX file of bytes in {dimensions} axes")
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", dimensions, 4))
    if shape[1:] not in ((), (SIDE, SIDE)):
        raise damaged(path, f"its images have {shape[1:]} pixels, not {(SIDE, SIDE)}")
    if len(content) - start != prod(shape):
        raise damaged(path, f"{prod(shape)} bytes are announced and {len(content) - start} follow")
    if shape[0] == count:
        check_official(content, sha256, path)
    return np.frombuffer(bytearray(content), np.uint8, offset=start).reshape(shape)


def _source(
    name: str, about: str, url: str, mean: float, std: float, official: Sequence[str]
) -> Source:
    return Source(
        name,
        f"{about}, 28×28 grey pixels, 10 classes.",
        f"{', '.join(FILES)} (plain or .gz) from {url}",
        partial(find, names=FILES),
        partial(decode, name=name, mean=mean, std=std, official=official),
    )


MNIST = _source(
    "mnist",
    "MNIST: handwritten digits",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    MNIST_MEAN,
    MNIST_STD,
    (
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
)
FASHION_MNIST = _source(
    "fashion_mnist",
    "Fashion-MNIST: clothes",
    "https://github.com/zalandoresearch/fashion-mnist",
    FASHION_MEAN,
    FASHION_STD,
    (
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
)
