"""CINIC-10 in folders: ``train/CLASS/*.png``, ``valid/CLASS/*.png`` and ``test/CLASS/*.png``.

The folder valid is not used. Pictures in folders ``CLASS`` without a split are split here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from fedcanon.data.dataset import Dataset, Split
from fedcanon.data.sources.checks import subset_note
from fedcanon.data.sources.files import Entry, find_matching, matching
from fedcanon.data.sources.images import decode_pictures, normalise
from fedcanon.data.sources.source import Source

CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
SIDE = 32
OFFICIAL = (90_000, 90_000)

MEAN = (0.47889522, 0.47227842, 0.43047404)
STD = (0.24205776, 0.23828046, 0.25874835)

PICTURE = re.compile(
    rf"(?!(?:.*/)?valid/)(?:.*?/)??(?:(train|test)/)?({'|'.join(CLASSES)})/[^/.][^/]*\.png"
)


def decode(folder: Path, files: Sequence[Path]) -> Dataset:
    """Pictures by class and, inside a class, by name."""
    by_class: dict[str | None, list[list[Entry]]] = {}
    for match, entry in matching(folder, files, PICTURE):
        split, label = match.groups()
        by_class.setdefault(split, [[] for _ in CLASSES])[CLASSES.index(label)].append(entry)
    if by_class.keys() == {None}:
        train = _split([_without_fifths(entries) for entries in by_class[None]])
        test = _split([_fifths(entries) for entries in by_class[None]])
        how = "; the files have no split, so every fifth picture of a class is a test sample"
    else:
        train, test = (_split(by_class.get(split, [])) for split in ("train", "test"))
        how = ""
    note = subset_note(train, test, OFFICIAL)
    return Dataset("cinic10", train, test, len(CLASSES), note and note + how)


def _fifths(entries: list[Entry]) -> list[Entry]:
    return entries[4::5]


def _without_fifths(entries: list[Entry]) -> list[Entry]:
    return [entry for index, entry in enumerate(entries) if index % 5 != 4]


def _split(by_class: Sequence[Sequence[Entry]]) -> Split:
    pixels = decode_pictures([entry for entries in by_class for entry in entries], SIDE)
    labels = torch.arange(len(by_class)).repeat_interleave(
        torch.tensor([len(entries) for entries in by_class], dtype=torch.int64)
    )
    return Split(normalise(pixels, MEAN, STD), labels)


CINIC10 = Source(
    "cinic10",
    "CINIC-10: the classes of CIFAR-10 with pictures of ImageNet, 32×32 colour pixels, 10 classes.",
    "CINIC-10.tar.gz (packed or unpacked) from https://datashare.ed.ac.uk/handle/10283/3192",
    partial(find_matching, pattern=PICTURE, example="train/airplane/*.png or CINIC-10.tar.gz"),
    decode,
)
