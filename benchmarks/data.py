"""What a batch costs before any arithmetic: python benchmarks/data.py [--smoke].

A client with 6,000 of the 60,000 images of a dataset the size of Fashion-MNIST goes once through
its samples in random batches of 64: by indexing its part of the tensors in memory, as a run does,
with and without augmentation, and with PyTorch's ``DataLoader`` over a ``Subset``. All contestants
take turns in one run on one thread, and medians of the time per batch are compared. ``--smoke``
takes one turn, to show that it works.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset, TensorDataset

from fedcanon import FlatModule, ModuleObjective
from fedcanon.engines.work import Batches
from fedcanon.objectives.augment import Augmentation, crop, flip

SAMPLES, OWN, BATCH = 60_000, 6_000, 64
TURNS = 31
TARGET = 10

Pass = Callable[[], Iterator[tuple[Tensor, Tensor]]]


def contestants() -> dict[str, Pass]:
    inputs, targets = torch.rand(SAMPLES, 1, 28, 28), torch.randint(10, (SAMPLES,))
    rows = torch.randperm(SAMPLES)[:OWN]
    flat = FlatModule(nn.Linear(1, 1))
    client = ModuleObjective(flat, nn.CrossEntropyLoss(), inputs[rows], targets[rows])
    subset = Subset(TensorDataset(inputs, targets), rows.tolist())
    loader = DataLoader(subset, BATCH, shuffle=True, drop_last=True)

    def indexed(*changes: Augmentation) -> Iterator[tuple[Tensor, Tensor]]:
        batches = Batches(OWN, BATCH, np.random.default_rng)
        for _ in range(OWN // BATCH):
            images, labels = client._at(batches.next())
            for change in changes:
                images = change(images)
            yield images, labels

    return {
        "indexing": indexed,
        "indexing, crop": lambda: indexed(crop),
        "indexing, flip": lambda: indexed(flip),
        "indexing, crop and flip": lambda: indexed(crop, flip),
        "DataLoader": lambda: iter(loader),
    }


def microseconds_per_batch(batches: Pass) -> float:
    start = time.perf_counter()
    count = sum(1 for _ in batches())
    return 1e6 * (time.perf_counter() - start) / count


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    passes = contestants()
    times: dict[str, list[float]] = {name: [] for name in passes}
    for _ in range(1 if options.smoke else TURNS):
        for name, batches in passes.items():
            times[name].append(microseconds_per_batch(batches))
    loader = statistics.median(times["DataLoader"])
    table = Table("batches by", "µs per batch", "DataLoader / this")
    for name, several in times.items():
        median = statistics.median(several)
        table.add_row(name, f"{median:.0f}", f"{loader / median:.1f}")
    Console().print(table)
    ratio = loader / statistics.median(times["indexing"])
    print(f"indexing is {ratio:.1f} times as fast as the DataLoader (target: {TARGET})")


if __name__ == "__main__":
    main()
