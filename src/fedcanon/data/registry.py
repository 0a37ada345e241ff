"""Datasets by their name in a configuration."""

from __future__ import annotations

from collections.abc import Callable

from fedcanon.data.dataset import Dataset
from fedcanon.data.hub import HUB, from_hub
from fedcanon.data.own import from_images, from_table
from fedcanon.data.sources import SOURCES, load_files
from fedcanon.data.sources.bundled import breast_cancer, digits
from fedcanon.data.sources.source import AbsentError, data_folder
from fedcanon.data.synthetic import synthetic
from fedcanon.errors import FedcanonError


def load(name: str) -> Dataset:
    """A published dataset: from the files in ``data_folder()/NAME``, or else from the hub.

    Args:
        name: A name of ``SOURCES``.

    Raises:
        FedcanonError: The files are damaged, or they are absent and the hub does not help.
    """
    try:
        return load_files(name)
    except AbsentError as missing:
        folder = data_folder() / name
        absent = f"the dataset {name} is not in {folder}, which has no {missing}"
    remedy = (
        f"put {SOURCES[name].download} into {folder}, or point FEDCANON_DATA at the folder that "
        f"holds {name}/."
    )
    if name not in HUB:
        raise FedcanonError(f"{absent}: {remedy}")
    try:
        return HUB[name]()
    except FedcanonError as error:
        raise FedcanonError(f"{absent}, and {error} Or {remedy}") from error


def _named(name: str) -> Callable[[], Dataset]:
    def load_named() -> Dataset:
        return load(name)

    load_named.__doc__ = SOURCES[name].about
    return load_named


DATASETS: dict[str, Callable[..., Dataset]] = {
    "digits": digits,
    "breast_cancer": breast_cancer,
    **{name: _named(name) for name in SOURCES},
    "synthetic": synthetic,
    "table": from_table,
    "images": from_images,
    "hub": from_hub,
}
"""Every dataset, and every way to your own data, by its name in a configuration."""
