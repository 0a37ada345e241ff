"""CINIC-10 in folders: ``train/CLASS/*.png``, ``valid/CLASS/*.png`` and ``test/CLASS/*.png``.

The folder valid is not used. Pictures in folders ``CLASS`` without a split are split here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fedcanon.data.dataset import Dataset, Split
from fedcanon.data.sources.checks import subset_note
from fedcanon.data.sources.files import Entry, find_matching, matching
from fedcanon.data.sources.images import split_of_pictures
from fedcanon.data.sources.source import Source

CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
OFFICIAL = (90_000, 90_000)

MEAN = (0.47889522, 0.47227842, 0.43047404)
STD = (0.24205776, 0.23828046, 0.25874835)

PICTURE = re.compile(
    rf"(?!(?:.*/)?valid/)(?:.*?/)??(?:(train|test)/)?({'|'.join(CLASSES)})/[^/.][^/]*\.png"
)


def decode(folder: Path, files: Sequence[Path]) -> Dataset:
    """The dataset of these files, ordered by class and, inside a class, by path."""
    pictures = defaultdict[tuple[str | None, str], list[Entry]](list)
    for match, entry in matching(folder, files, PICTURE):
        pictures[match[1], match[2]].append(entry)
    how = ""
    if {part for part, _ in pictures} == {None}:
        how = "; the files have no split, so every fifth picture of a class is a test sample"
        for name in CLASSES:
            pictures["train", name] = pictures[None, name]
            pictures["test", name] = pictures[None, name][4::5]
            del pictures["train", name][4::5]

    def split(part: str) -> Split:
        labelled = [(k, entry) for k, name in enumerate(CLASSES) for entry in pictures[part, name]]
        return split_of_pictures(labelled, 32, MEAN, STD)

    train, test = split("train"), split("test")
    note = subset_note(train, test, OFFICIAL)
    return Dataset("cinic10", train, test, len(CLASSES), note and note + how)


CINIC10 = Source(
    "cinic10",
    "CINIC-10: the classes of CIFAR-10 with pictures of ImageNet, 32×32 colour pixels, 10 classes.",
    "CINIC-10.tar.gz (packed or unpacked) from https://datashare.ed.ac.uk/handle/10283/3192",
    partial(find_matching, pattern=PICTURE, example="train/airplane/*.png or CINIC-10.tar.gz"),
    decode,
)
