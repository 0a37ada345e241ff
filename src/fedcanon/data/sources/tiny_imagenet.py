"""Tiny ImageNet in folders: ``train/CLASS/images/*.JPEG`` and ``val/images/*.JPEG``.

The validation pictures are the test data here, for the official test pictures have no labels. Their
classes are in ``val/val_annotations.txt``. Classes are numbered in the order of their names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from fedcanon.data.dataset import Dataset
from fedcanon.data.sources.checks import subset_note
from fedcanon.data.sources.files import Entry, damaged, find_matching, matching
from fedcanon.data.sources.images import split_of_pictures
from fedcanon.data.sources.source import Source
from fedcanon.errors import FedcanonError

OFFICIAL = (100_000, 10_000)

MEAN = (0.4802, 0.4481, 0.3975)
STD = (0.2770, 0.2691, 0.2821)

FILE = re.compile(
    r"(?:.*/)?(?:train/(?P<label>[^/]+)/images/(?P<train>[^/.][^/]*\.JPEG)"
    r"|val/images/(?P<val>[^/.][^/]*\.JPEG)|val/val_annotations\.txt)"
)

Labelled = tuple[str, Entry]
"""The name of its class, and a picture."""


def decode(folder: Path, files: Sequence[Path]) -> Dataset:
    """The dataset of these files: training pictures by path, then those of the annotations."""
    train: list[Labelled] = []
    val: dict[str, Entry] = {}
    annotations = None
    for match, entry in matching(folder, files, FILE):
        if match["train"]:
            train.append((match["label"], entry))
        elif match["val"]:
            val[match["val"]] = entry
        else:
            annotations = entry
    if annotations is None:
        raise FedcanonError(
            f"{folder} has no val/val_annotations.txt, which names the classes of the validation "
            "pictures: put it there from the official archive."
        )
    classes = {name: number for number, name in enumerate(sorted({name for name, _ in train}))}
    train_split, test_split = (
        split_of_pictures([(classes[name], entry) for name, entry in pictures], 64, MEAN, STD)
        for pictures in (train, _annotated(val, annotations, classes))
    )
    note = subset_note(train_split, test_split, OFFICIAL)
    return Dataset("tiny_imagenet", train_split, test_split, len(classes), note)


def _annotated(
    pictures: Mapping[str, Entry], annotations: Entry, classes: Mapping[str, int]
) -> list[Labelled]:
    """The validation pictures with their classes, in the order of the annotations.

    A line of the annotations begins with the name of a picture, a tab and its class.
    """
    lines = annotations.content.decode(errors="replace").splitlines()
    labels = dict(line.split("\t")[:2] for line in lines if "\t" in line)
    missing = sorted(labels.keys() ^ pictures.keys())
    if missing:
        raise damaged(
            annotations.where, f"it and the pictures beside it do not agree on {missing[0]}"
        )
    unknown = sorted(set(labels.values()) - classes.keys())
    if unknown:
        raise damaged(annotations.where, f"the class {unknown[0]} has no training pictures")
    return [(labels[name], pictures[name]) for name in labels]


TINY_IMAGENET = Source(
    "tiny_imagenet",
    "Tiny ImageNet: pictures of ImageNet, 64×64 colour pixels, 200 classes.",
    "tiny-imagenet-200.zip (packed or unpacked) from "
    "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    partial(find_matching, pattern=FILE, example="train/*/images/*.JPEG or tiny-imagenet-200.zip"),
    decode,
)
