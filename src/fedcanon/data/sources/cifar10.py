"""CIFAR-10 in six batches, of binary records or of pickled arrays."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path, PurePosixPath

import numpy as np
import torch

from fedcanon.data.dataset import Dataset, Split
from fedcanon.data.sources.checks import check_labels, check_official, subset_note
from fedcanon.data.sources.files import Entry, damaged, entries, find, is_archive, under
from fedcanon.data.sources.images import Pixels, normalise
from fedcanon.data.sources.pickles import unpickle
from fedcanon.data.sources.source import AbsentError, Source

CLASSES = 10
SHAPE = (3, 32, 32)
RECORD = 1 + 3 * 32 * 32
"""Bytes of a sample: its label, then red, green and blue, row by row."""

MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2470, 0.2435, 0.2616)

BATCH_SIZE = 10_000
OFFICIAL = {
    "data_batch_1": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
"""SHA-256 of the records of each batch."""


def files(folder: Path) -> list[Path]:
    """The files of a folder: six binary batches, six pickled ones, or an archive of either."""
    for suffix in (".bin", ""):
        with suppress(AbsentError):
            return find(folder, [name + suffix for name in OFFICIAL])
    archives = [path for path in under(folder) if is_archive(path)]
    if not archives:
        raise AbsentError("data_batch_1.bin … or cifar-10-binary.tar.gz")
    return archives[:1]


def decode(folder: Path, files: Sequence[Path]) -> Dataset:
    """The dataset of these files, its batches in their official order."""
    with ThreadPoolExecutor() as pool:
        found = pool.map(lambda path: _batches(folder, path), files)
        batches = {name: records for part in found for name, records in part.items()}
    missing = [name for name in OFFICIAL if name not in batches]
    if missing:
        raise damaged(files[0], f"it has no {missing[0]}")

    def split(names: Sequence[str]) -> Split:
        records = np.concatenate([batches[name] for name in names])
        inputs = normalise(records[:, 1:].reshape(-1, *SHAPE), MEAN, STD)
        return Split(inputs, torch.from_numpy(records[:, 0].astype(np.int64)))

    *train_names, test_name = OFFICIAL
    train, test = split(train_names), split([test_name])
    note = subset_note(train, test, (5 * BATCH_SIZE, BATCH_SIZE))
    return Dataset("cifar10", train, test, CLASSES, note)


def _batches(folder: Path, path: Path) -> dict[str, Pixels]:
    """The batches of a file by name; other members of an archive are passed over."""
    return {
        name: _records(name, entry)
        for entry in entries(folder, path)
        if (name := PurePosixPath(entry.name).name.removesuffix(".bin")) in OFFICIAL
    }


def _records(name: str, entry: Entry) -> Pixels:
    records = _binary(entry) if entry.name.endswith(".bin") else _pickled(entry)
    check_labels(records[:, 0], CLASSES, entry.where)
    if len(records) == BATCH_SIZE:
        check_official(records.tobytes(), OFFICIAL[name], entry.where)
    return records


def _binary(entry: Entry) -> Pixels:
    if len(entry.content) % RECORD:
        raise damaged(entry.where, f"its size is not a multiple of {RECORD} bytes")
    return np.frombuffer(entry.content, np.uint8).reshape(-1, RECORD)


def _pickled(entry: Entry) -> Pixels:
    batch = unpickle(entry.content, entry.where)
    try:
        labels, pixels = batch[b"labels"], batch[b"data"]
        if pixels.dtype != np.uint8 or pixels.shape != (len(labels), RECORD - 1):
            raise damaged(entry.where, f"its data do not fit {len(labels)} labels")
        return np.column_stack([np.asarray(labels, np.uint8), pixels])
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as problem:
        raise damaged(entry.where, "it is not a CIFAR-10 batch") from problem


CIFAR10 = Source(
    "cifar10",
    "CIFAR-10: objects and animals, 32×32 colour pixels, 10 classes.",
    "cifar-10-binary.tar.gz or cifar-10-python.tar.gz (packed or unpacked) from "
    "https://www.cs.toronto.edu/~kriz/cifar.html",
    files,
    decode,
)
