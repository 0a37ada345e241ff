"""FEMNIST by writer: the JSON files of LEAF, or the same as NumPy archives.

LEAF's files hold ``users``, ``num_samples`` and ``user_data``, which has for each user the images
``x``, rows of 784 numbers in [0, 1], and the labels ``y``. The archives ``femnist_train.npz`` and
``femnist_test.npz`` hold the bytes ``x`` (N, 28, 28), the labels ``y``, and the ``writer`` of each
image as an index into ``writer_ids``.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fedcanon.data.dataset import Dataset, Split
from fedcanon.data.sources.checks import check_labels
from fedcanon.data.sources.files import COMPRESSIONS, Unpacking, damaged, find, read, under
from fedcanon.data.sources.images import Pixels, normalise
from fedcanon.data.sources.source import AbsentError, Source
from fedcanon.errors import FedcanonError

CLASSES = 62
SIDE = 28
WRITERS = 3_550
"""Writers of the complete dataset."""

MEAN, STD = 0.9615, 0.1642
"""Brightness of the training images of 300 writers; paper is white, which is 1."""

ARCHIVES = ("femnist_train.npz", "femnist_test.npz")
_JSON = tuple(f".json{compression}" for compression in COMPRESSIONS)


class _Part(NamedTuple):
    """The images of one file, with their labels and the identifiers of their writers."""

    pixels: Pixels
    labels: NDArray[np.int64]
    writers: NDArray[np.str_]


def files(folder: Path) -> list[Path]:
    """The files of a folder: two archives, or JSON files in folders called train and test."""
    try:
        return find(folder, ARCHIVES)
    except AbsentError:
        shards = [path for path in under(folder) if path.name.endswith(_JSON)]
    for split in ("train", "test"):
        if not any(path.parent.name == split for path in shards):
            raise AbsentError(f"{split}/*.json")
    return [path for path in shards if path.parent.name in ("train", "test")]


def decode(folder: Path, files: Sequence[Path]) -> Dataset:
    """The dataset of these files; writers are numbered in the order of their identifiers."""
    parts: dict[bool, list[_Part]] = {True: [], False: []}
    for path in files:
        is_train = path.name.startswith(ARCHIVES[0]) or path.parent.name == "train"
        parts[is_train].append(_read(path))
    identifiers = np.unique(np.concatenate([part.writers for part in parts[True] + parts[False]]))

    def split(own: list[_Part]) -> Split:
        pixels, labels, writers = map(np.concatenate, zip(*own, strict=True))
        users = np.searchsorted(identifiers, writers)
        inputs = normalise(pixels[:, None], MEAN, STD)
        return Split(inputs, torch.from_numpy(labels), torch.from_numpy(users))

    train, test = split(parts[True]), split(parts[False])
    note = (
        f"subset: {len(identifiers):,} of {WRITERS:,} writers, "
        f"with {len(train):,} training and {len(test):,} test samples"
    )
    complete = len(identifiers) >= WRITERS
    return Dataset("femnist", train, test, CLASSES, "" if complete else note)


def _read(path: Path) -> _Part:
    content = read(path)
    try:
        is_archive = path.name.startswith(ARCHIVES)
        part = _from_archive(content, path) if is_archive else _from_json(content)
    except FedcanonError:
        raise
    except Exception as problem:  # a damaged archive raises nearly anything
        raise damaged(path, f"{type(problem).__name__}: {problem}") from problem
    check_labels(part.labels, CLASSES, path)
    return part


def _from_archive(content: bytes, path: Path) -> _Part:
    unpacking = Unpacking(path, len(content))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for member in archive.infolist():
            unpacking.count(member.file_size)  # no more than this is read of it
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        pixels, labels = arrays["x"], arrays["y"].astype(np.int64)
        writers = arrays["writer_ids"][arrays["writer"]]
    if pixels.dtype != np.uint8 or pixels.shape[1:] != (SIDE, SIDE):
        raise ValueError(f"x must be bytes of shape (N, {SIDE}, {SIDE})")
    if not len(pixels) == len(labels) == len(writers):
        raise ValueError(
            f"it has {len(pixels)} images, {len(labels)} labels and {len(writers)} writers"
        )
    return _Part(pixels, labels, writers)


def _from_json(content: bytes) -> _Part:
    shard = json.loads(content)
    images, labels, writers = [], [], []
    for user, count in zip(shard["users"], shard["num_samples"], strict=True):
        data = shard["user_data"][user]
        if not len(data["x"]) == len(data["y"]) == count:
            raise ValueError(
                f"the writer {user} has {len(data['x'])} images and {len(data['y'])} labels, "
                f"not {count}"
            )
        images += data["x"]
        labels += data["y"]
        writers += [user] * count
    brightness = np.array(images, np.float64).reshape(len(images), SIDE, SIDE)
    if not ((brightness >= 0) & (brightness <= 1)).all():
        raise ValueError("it has a brightness outside [0, 1]")
    pixels = np.rint(brightness * 255).astype(np.uint8)
    return _Part(pixels, np.array(labels, np.int64), np.array(writers, np.str_))


FEMNIST = Source(
    "femnist",
    "FEMNIST (LEAF): handwritten digits and letters by writer, 28×28 grey pixels, 62 classes.",
    "the folders train and test with the .json files (plain or .gz) that "
    "./preprocess.sh -s niid --sf 1.0 -k 0 -t sample makes in data/femnist of "
    "https://github.com/TalwalkarLab/leaf",
    files,
    decode,
)
