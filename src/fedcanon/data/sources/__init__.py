"""Published datasets in the files of their authors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedcanon.data.cache import cached
from fedcanon.data.dataset import Dataset
from fedcanon.data.sources.a9a import A9A
from fedcanon.data.sources.cifar10 import CIFAR10
from fedcanon.data.sources.cinic10 import CINIC10
from fedcanon.data.sources.femnist import FEMNIST
from fedcanon.data.sources.idx import FASHION_MNIST, MNIST
from fedcanon.data.sources.source import Source, data_folder
from fedcanon.data.sources.tiny_imagenet import TINY_IMAGENET
from fedcanon.errors import FedcanonError

SOURCES: dict[str, Source] = {
    source.name: source
    for source in (A9A, MNIST, FASHION_MNIST, FEMNIST, CIFAR10, CINIC10, TINY_IMAGENET)
}
"""The datasets that are read from files."""


def load_files(name: str) -> Dataset:
    """A dataset from the files in ``data_folder()/NAME``, decoded once and then cached.

    Raises ``AbsentError`` where files are missing.
    """
    source = SOURCES[name]
    folder = data_folder() / name
    files = source.files(folder)
    return cached(name, source.version, folder, files, lambda: _decode(source, folder, files))


def _decode(source: Source, folder: Path, files: Sequence[Path]) -> Dataset:
    dataset = source.decode(folder, files)
    if not (len(dataset.train) and len(dataset.test)):
        raise FedcanonError(
            f"{folder} has {len(dataset.train)} training and {len(dataset.test)} test samples, and "
            f"both are needed: put {source.download} there."
        )
    return dataset


__all__ = ["SOURCES", "load_files"]
