"""Published datasets in the files of their authors."""

from __future__ import annotations

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

    Args:
        name: A name of ``SOURCES``.

    Raises:
        AbsentError: Files are missing.
        FedcanonError: A file is damaged or cannot be read.
    """
    source, folder = SOURCES[name], data_folder() / name
    files = source.files(folder)

    def decode() -> Dataset:
        dataset = source.decode(folder, files)
        sizes = len(dataset.train), len(dataset.test)
        if not all(sizes):
            raise FedcanonError(
                f"{folder} has {sizes[0]} training and {sizes[1]} test samples, and both are "
                f"needed: put {source.download} there."
            )
        return dataset

    return cached(name, source.version, folder, files, decode)


__all__ = ["SOURCES", "load_files"]
