"""Tiny ImageNet in folders: ``train/CLASS/images/*.JPEG`` and ``val/images/*.JPEG``.

``val/val_annotations.txt`` has the class of each validation picture, which are the test data here:
the official test pictures have no labels. Classes are numbered in the order of their names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import torch

from fedcanon.data.dataset import Dataset, Split
from fedcanon.data.sources.checks import subset_note
from fedcanon.data.sources.files import Entry, damaged, find_matching, matching
from fedcanon.data.sources.images import decode_pictures, normalise
from fedcanon.data.sources.source import Source
from fedcanon.errors import FedcanonError

SIDE = 64
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
    """Training pictures by class, validation pictures by name."""
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
    test = _annotated(val, annotations, classes)
    splits = _split(train, classes), _split(test, classes)
    return Dataset("tiny_imagenet", *splits, len(classes), subset_note(*splits, OFFICIAL))


def _annotated(
    pictures: Mapping[str, Entry], annotations: Entry, classes: Mapping[str, int]
) -> list[Labelled]:
    """Pictures with their classes; a line of the annotations begins with file and class."""
    lines = [line.split("\t") for line in annotations.content.decode(errors="replace").splitlines()]
    labels = {line[0]: line[1] for line in lines if len(line) > 1}
    missing = sorted(labels.keys() ^ pictures.keys())
    if missing:
        raise damaged(
            annotations.where, f"it and the pictures beside it do not agree on {missing[0]}"
        )
    unknown = sorted(set(labels.values()) - classes.keys())
    if unknown:
        raise damaged(annotations.where, f"the class {unknown[0]} has no training pictures")
    return [(labels[name], pictures[name]) for name in labels]


def _split(pictures: Sequence[Labelled], classes: Mapping[str, int]) -> Split:
    pixels = decode_pictures([entry for _, entry in pictures], SIDE)
    labels = torch.tensor([classes[name] for name, _ in pictures], dtype=torch.int64)
    return Split(normalise(pixels, MEAN, STD), labels)


TINY_IMAGENET = Source(
    "tiny_imagenet",
    "Tiny ImageNet: pictures of ImageNet, 64×64 colour pixels, 200 classes.",
    "tiny-imagenet-200.zip (packed or unpacked) from "
    "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    partial(find_matching, pattern=FILE, example="train/*/images/*.JPEG or tiny-imagenet-200.zip"),
    decode,
)
