"""How a dataset is spread over clients."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from fedcanon.data.partition.base import MINIMUM, Partition
from fedcanon.data.partition.labels import Dirichlet, Iid, Quantity, Shards
from fedcanon.data.partition.noise import Noise
from fedcanon.data.partition.partitioners import Flower, Pathological
from fedcanon.data.partition.users import Users, Writers
from fedcanon.errors import FedcanonError
from fedcanon.importing import import_object, is_import_path

PARTITIONS: dict[str, type[Partition]] = {
    "iid": Iid,
    "dirichlet": Dirichlet,
    "shards": Shards,
    "pathological": Pathological,
    "quantity": Quantity,
    "noise": Noise,
    "users": Users,
    "writers": Writers,
    "flower": Flower,
}
"""The partitions by the name that begins a description."""

__all__ = [
    "MINIMUM",
    "PARTITIONS",
    "Dirichlet",
    "Flower",
    "Iid",
    "Noise",
    "Partition",
    "Pathological",
    "Quantity",
    "Shards",
    "Users",
    "Writers",
    "make_partition",
    "partition",
]


def make_partition(spec: str) -> Partition:
    """The partition of a description such as "iid", "dirichlet:0.2" or package.module:Name:2."""
    name, _, argument = spec.partition(":")
    own, _, rest = argument.partition(":")
    if name not in PARTITIONS and is_import_path(f"{name}:{own}"):
        found = import_object(f"{name}:{own}", "partition")
        if not (isinstance(found, type) and issubclass(found, Partition)):
            raise FedcanonError(f"{name}:{own} must be a Partition of fedcanon.data.")
        return found.parse(f"{name}:{own}", rest)
    if name not in PARTITIONS:
        raise FedcanonError(
            f"there is no partition called '{name}': use one of {', '.join(PARTITIONS)}."
        )
    return PARTITIONS[name].parse(name, argument)


def partition(
    spec: str,
    labels: Tensor,
    clients: int,
    rng: np.random.Generator,
    users: Tensor | None = None,
) -> list[Tensor]:
    """Sample indices of every client, by a description such as "iid" or "dirichlet:0.2".

    Every sample goes to exactly one client, and every client gets at least ``MINIMUM``.
    """
    return make_partition(spec).parts(labels, clients, rng, users)
