"""Datasets of the Hugging Face hub and of its library ``datasets``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import Tensor

from fedcanon.data.cache import cached
from fedcanon.data.dataset import Dataset
from fedcanon.data.own.images import read_images
from fedcanon.data.own.samples import Samples, build
from fedcanon.data.own.tables import encode_tables, table_samples
from fedcanon.data.sources import cifar10, cinic10, femnist, idx
from fedcanon.data.sources import tiny_imagenet as tiny
from fedcanon.data.sources.files import under
from fedcanon.data.sources.images import Channels, standardise_
from fedcanon.errors import FedcanonError

USER_COLUMNS = ("user", "user_id", "client", "client_id", "writer_id", "speaker_id")
"""Columns that say whom a sample comes from, if nothing else is said."""


def from_hub(
    repo: str,
    *,
    config: str | None = None,
    train: str = "train",
    test: str | None = None,
    image: str | None = None,
    label: str | None = None,
    user: str | None = None,
    name: str | None = None,
) -> Dataset:
    """A dataset of the Hugging Face hub, or a folder with its files.

    Files are downloaded once, into the hub's cache; without a network the cache is used.

    Args:
        repo: The name of a repository, such as ylecun/mnist, or the path of a folder.
        config: Which dataset to take of a repository that has several.
        train: As in ``from_dataset``, like the arguments that follow.
        test: The split of test data.
        image: The column of images.
        label: The column of classes.
        user: The column that says whom a sample comes from.
        name: What the dataset is called in results; by default the last part of ``repo``.

    Raises:
        FedcanonError: The files cannot be had or are not complete, or the arguments do not fit
            them.
    """
    datasets = _library("datasets")
    folder = repo if Path(repo).is_dir() else _download(repo)
    try:
        if config is None and datasets.get_dataset_default_config_name(folder) is None:
            names = ", ".join(datasets.get_dataset_config_names(folder))
            raise FedcanonError(f"{repo} holds several datasets: set config to one of {names}.")
        loaded = datasets.load_dataset(folder, config)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        reason = " ".join(str(error.__cause__ or error).split())
        raise FedcanonError(
            f"the files of {repo} are not a complete dataset ({reason}): download them again, or "
            "choose another repository."
        ) from error
    columns = {"image": image, "label": label, "user": user}
    return from_dataset(loaded, train=train, test=test, name=name or Path(repo).name, **columns)


def from_dataset(
    dataset: Any,
    *,
    train: str = "train",
    test: str | None = None,
    image: str | None = None,
    label: str | None = None,
    user: str | None = None,
    name: str = "dataset",
) -> Dataset:
    """A dataset of the library ``datasets``.

    Images are scaled to [0, 1]. Without images, the other columns are features, and treated as in
    ``from_table``. Columns that are not named are found by what they hold.

    Args:
        dataset: A ``datasets.DatasetDict``, or one ``datasets.Dataset``.
        train: The split of training data.
        test: The split of test data; by default the one called test. If there is none, a fifth of
            the training data is held out.
        image: The column of images; by default the one that holds images, if any.
        label: The column of classes; by default the one of class labels, or the one called label.
        user: The column that says whom a sample comes from; by default one of ``USER_COLUMNS``.
        name: What the dataset is called in results.

    Raises:
        FedcanonError: A split or column is not there, or it is not clear which one is meant.
    """
    datasets = _library("datasets")
    if isinstance(dataset, datasets.Dataset):
        dataset = {train: dataset}
    elif not isinstance(dataset, datasets.DatasetDict):
        raise FedcanonError(
            f"{type(dataset).__name__} is not a datasets.Dataset or DatasetDict: load the data "
            "without streaming."
        )
    for split in (train, test):
        if split is not None and split not in dataset:
            raise FedcanonError(f"{name} has no split '{split}': use one of {', '.join(dataset)}.")
    features = dataset[train].features
    image = _column(image, features, "image", _of_kind(features, datasets.Image))
    label = _column(label, features, "label", _of_kind(features, datasets.ClassLabel) or ["label"])
    user = _column(user, features, "user", [c for c in USER_COLUMNS if c in features])
    if label is None:
        raise FedcanonError(f"{name} does not say which column is the label: {_choose(features)}")

    def samples(part: str, split: str) -> Samples:
        rows = dataset[split]
        if image is None:
            return table_samples(part, _table(datasets, rows, label), label, user)
        encoded = rows.cast_column(image, datasets.Image(decode=False))[image]
        pictures = [
            (f"image {i} of {split}", cell["bytes"] or Path(cell["path"]))
            for i, cell in enumerate(encoded)
        ]
        return Samples(part, pictures, rows[label][:], rows[user][:] if user else None)

    if test is None and "test" in dataset:
        test = "test"
    return build(
        name,
        samples("training", train),
        samples("test", test) if test else None,
        prepare=read_images if image else encode_tables,
        classes=getattr(features[label], "num_classes", None),
    )


def _download(repo: str) -> str:
    """The folder of a repository's files, downloaded unless the hub's cache has them."""
    hub = _library("huggingface_hub")
    try:
        return str(hub.snapshot_download(repo, repo_type="dataset"))
    # Four libraries raise here, each with its own exceptions.
    except Exception as error:
        reason = str(error.__cause__ or error).splitlines()[0].rstrip(".")
        cache = Path(hub.constants.HF_HUB_CACHE) / f"datasets--{repo.replace('/', '--')}"
        raise FedcanonError(
            f"{repo} is neither a folder nor to be had from the Hugging Face hub ({reason}): check "
            f"its name; without a network, run `hf download --repo-type dataset {repo}` elsewhere "
            f"and copy the folder it fills to {cache}, or give the path of a folder with its files."
        ) from error


def _of_kind(features: Any, kind: type) -> list[str]:
    return [column for column, feature in features.items() if isinstance(feature, kind)]


def _column(named: str | None, features: Any, what: str, found: list[str]) -> str | None:
    """The column that was named, or the only one found; None if there is none."""
    if named is not None and named not in features:
        raise FedcanonError(f"there is no {what} column '{named}': {_choose(features)}")
    if named is None and len(found) > 1:
        raise FedcanonError(f"several columns may be the {what}: set {what} to one of {found}.")
    return named or next((column for column in found if column in features), None)


def _choose(features: Any) -> str:
    return f"use one of {', '.join(features)}."


def _table(datasets: Any, rows: Any, label: str) -> Any:
    """The rows in pandas, numbered classes among the features as the categories they are."""
    table = rows.to_pandas()
    codes = [c for c in _of_kind(rows.features, datasets.ClassLabel) if c != label]
    return table.astype(dict.fromkeys(codes, "category"))


def _standardised(
    name: str, repo: str, mean: Channels, std: Channels, columns: dict[str, str]
) -> Dataset:
    """Images of the hub with the same pixels as those that are read from the official files.

    They are decoded once and then cached. ``columns`` are the arguments of ``from_hub`` that are
    not the usual ones.
    """
    folder = Path(repo) if Path(repo).is_dir() else Path(_download(repo))

    def decode() -> Dataset:
        dataset = from_hub(str(folder), name=name, **{"image": "image", "label": "label"} | columns)
        for images in (dataset.train.inputs, dataset.test.inputs):
            assert isinstance(images, Tensor)
            standardise_(images, mean, std)
        return dataset

    return cached(name, 1, folder, under(folder), decode)


HUB: dict[str, Callable[[], Dataset]] = {
    name: partial(_standardised, name, repo, mean, std, columns)
    for name, repo, mean, std, columns in (
        ("mnist", "ylecun/mnist", idx.MNIST_MEAN, idx.MNIST_STD, {}),
        ("fashion_mnist", "zalando-datasets/fashion_mnist", idx.FASHION_MEAN, idx.FASHION_STD, {}),
        ("cifar10", "uoft-cs/cifar10", cifar10.MEAN, cifar10.STD, {"image": "img"}),
        ("cinic10", "flwrlabs/cinic10", cinic10.MEAN, cinic10.STD, {}),
        ("femnist", "flwrlabs/femnist", femnist.MEAN, femnist.STD, {"label": "character"}),
        ("tiny_imagenet", "zh-plus/tiny-imagenet", tiny.MEAN, tiny.STD, {"test": "valid"}),
    )
}
"""Where the hub keeps datasets that fedcanon knows by name, with what they call splits and columns.

FEMNIST has no test split there, so a fifth is held out; Tiny ImageNet's validation split is tested
on, for its test labels are not public; CINIC-10's validation split is left out.
"""


def _library(name: str) -> Any:
    """Import a library of the extra ``data``."""
    try:
        return import_module(name)
    except ImportError:
        raise FedcanonError(f'{name} is not installed: pip install "fedcanon[data]".') from None
