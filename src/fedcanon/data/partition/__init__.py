"""How a dataset is spread over clients."""

from __future__ import annotations

from numpy.random import Generator
from torch import Tensor

from fedcanon.data.partition.base import MINIMUM, Partition
from fedcanon.data.partition.labels import Dirichlet, Iid, Quantity, Shards
from fedcanon.data.partition.noise import Noise
from fedcanon.data.partition.partitioners import Flower, Pathological
from fedcanon.data.partition.users import Users, Writers
from fedcanon.errors import FedcanonError
from fedcanon.importing import import_object, is_import_path

PARTITIONS: dict[str, type[Partition]] = {
    rule.__name__.lower(): rule
    for rule in (Iid, Dirichlet, Shards, Pathological, Quantity, Noise, Users, Writers, Flower)
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
    """The partition of a description.

    Args:
        spec: A name of ``PARTITIONS`` and, after a colon, its number, such as "iid" or
            "dirichlet:0.2"; or a partition of your own, such as "package.module:Name:2".

    Raises:
        FedcanonError: There is no such partition, or its number is not one that it can have.
    """
    name, _, argument = spec.partition(":")
    if name in PARTITIONS:
        return PARTITIONS[name].parse(name, argument)
    attribute, _, rest = argument.partition(":")
    own = f"{name}:{attribute}"
    if not is_import_path(own):
        raise FedcanonError(
            f"there is no partition called '{name}': use one of {', '.join(PARTITIONS)}."
        )
    found = import_object(own, "partition")
    if not (isinstance(found, type) and issubclass(found, Partition)):
        raise FedcanonError(f"{own} must be a Partition of fedcanon.data.")
    return found.parse(own, rest)


def partition(
    spec: str, labels: Tensor, clients: int, rng: Generator, users: Tensor | None = None
) -> list[Tensor]:
    """The indices of every client's samples.

    Every sample goes to exactly one client, and every client gets at least ``MINIMUM``.

    Args:
        spec: A description of the partition, such as "iid" or "dirichlet:0.2"; see
            ``make_partition``.
        labels: The class of each sample.
        clients: How many clients there are.
        rng: The generator to draw from.
        users: The user whom each sample comes from; some partitions need it.

    Raises:
        FedcanonError: There is no such partition, or it cannot be made of these samples.
    """
    return make_partition(spec).parts(labels, clients, rng, users)
