"""The partitioners of Flower's package ``flwr-datasets``."""

from __future__ import annotations

import ast
import importlib
import inspect
import warnings
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.random import Generator

from fedcanon.data.partition.base import MINIMUM, Graded, Numbers, Partition, Parts
from fedcanon.errors import FedcanonError


@dataclass(frozen=True)
class Flower(Partition):
    """Any partitioner of Flower, such as flower:LinearPartitioner.

    The samples are shuffled first, as Flower's own ``FederatedDataset`` does. A result that leaves
    samples out or gives a client fewer than ``MINIMUM`` is refused.

    Args:
        name: The name of one of the classes of ``flwr_datasets.partitioner``.
        options: Its keyword arguments. The number of clients and a seed are filled in, and
            ``partition_by`` is "label" (or "user" for natural ids) unless given.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, name: str, argument: str) -> Self:
        partitioner, _, text = argument.partition(":")
        options = {}
        for option in filter(None, text.split(",")):
            key, equals, value = option.partition("=")
            if not equals:
                raise FedcanonError(
                    f"the options of '{name}:{partitioner}' are written key=value, not '{option}'."
                )
            options[key.strip()] = _literal(value.strip())
        return cls(partitioner, options)

    def deal(self, labels: Numbers, users: Numbers | None, clients: int, rng: Generator) -> Parts:
        samples = rng.permutation(len(labels))
        columns = {"sample": samples, "label": labels[samples]}
        if users is not None:
            columns["user"] = users[samples]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what they warn of is checked below
            cls = _partitioner(self.name)
            filled = {
                "num_partitions": clients,
                "partition_by": "user" if "NaturalId" in self.name else "label",
                "seed": int(rng.integers(2**31)),
            }
            known = inspect.signature(cls).parameters
            options = {key: value for key, value in filled.items() if key in known} | self.options
            try:
                partitioner = cls(**options)
                partitioner.dataset = _import("datasets").Dataset.from_dict(columns)
                numbers = range(partitioner.num_partitions)
                loaded = [partitioner.load_partition(number) for number in numbers]
            except (TypeError, ValueError, KeyError) as error:
                raise FedcanonError(f"Flower's {self.name} refuses: {error}") from None
        parts = [np.array(part["sample"][:], np.int64) for part in loaded]
        self._check(parts, len(labels), clients)
        return parts

    def _check(self, parts: Parts, samples: int, clients: int) -> None:
        if len(parts) != clients:
            raise FedcanonError(
                f"Flower's {self.name} makes {len(parts)} clients of these data, not {clients}: "
                f"set clients.count = {len(parts)}."
            )
        times = np.bincount(np.concatenate(parts), minlength=samples)
        if (wrong := int((times != 1).sum())) > 0:
            raise FedcanonError(
                f"with these options Flower's {self.name} leaves {wrong} of {samples} samples out: "
                "change them."
            )
        if (smallest := min(map(len, parts))) < MINIMUM:
            raise FedcanonError(
                f"with these options Flower's {self.name} leaves a client with {smallest} samples, "
                f"and {MINIMUM} are the least: take fewer clients."
            )


@dataclass(frozen=True)
class Pathological(Graded):
    """Label skew: every client has exactly k classes (Flower's PathologicalPartitioner).

    As in NIID-Bench, client i has class i mod C, and k − 1 others drawn at random. Samples are
    left out, and the partition refused, if some of the C classes are drawn by no client; with at
    least C clients this cannot happen.

    Args:
        k: How many classes each client has.
    """

    k: int

    def deal(self, labels: Numbers, users: Numbers | None, clients: int, rng: Generator) -> Parts:
        options = {
            "num_classes_per_partition": self.k,
            "class_assignment_mode": "first-deterministic",
        }
        return Flower("PathologicalPartitioner", options).deal(labels, users, clients, rng)


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _partitioner(name: str) -> Any:
    """Flower's class of this name, if it splits samples; its vertical ones split columns."""
    module = _import("flwr_datasets.partitioner")
    names = [n for n in module.__all__ if n != "Partitioner" and not n.startswith("Vertical")]
    if name not in names:
        raise FedcanonError(
            f"Flower has no partitioner '{name}' of samples: use one of {', '.join(names)}."
        )
    return getattr(module, name)


def _import(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise FedcanonError(
            "partitions of Flower need the package flwr-datasets: pip install 'fedcanon[data]'."
        ) from None
