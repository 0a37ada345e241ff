"""Table IV: the datasets, counted as they are at hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fedcanon.data.sources import load_files
from fedcanon.data.sources.source import AbsentError
from fedcanon.paper.outcome import Claim, Outcome, Table
from fedcanon.paper.scales import Scale
from fedcanon.paper.trials import Bench


@dataclass(frozen=True)
class Published:
    """What the paper prints of a dataset."""

    shown: str
    train: int
    test: int
    classes: int
    shape: tuple[int, ...]


PUBLISHED = {
    "a9a": Published("A9A", 32_561, 16_281, 2, (123,)),
    "mnist": Published("MNIST", 60_000, 10_000, 10, (1, 28, 28)),
    "fashion_mnist": Published("Fashion-MNIST", 60_000, 10_000, 10, (1, 28, 28)),
    "femnist": Published("FEMNIST", 712_825, 92_438, 62, (1, 28, 28)),
    "cifar10": Published("CIFAR-10", 50_000, 10_000, 10, (3, 32, 32)),
    "cinic10": Published("CINIC-10", 90_000, 90_000, 10, (3, 32, 32)),
    "tiny_imagenet": Published("Tiny ImageNet", 100_000, 10_000, 200, (3, 64, 64)),
}


@dataclass(frozen=True)
class Found:
    """A dataset beside the paper's row; without counts where it is not at hand."""

    published: Published
    train: int = 0
    test: int = 0
    classes: int = 0
    shape: tuple[int, ...] = ()

    @property
    def state(self) -> str:
        """complete, subset or absent."""
        if not self.train:
            return "absent"
        complete = (self.train, self.test) == (self.published.train, self.published.test)
        return "complete" if complete else "subset"

    @property
    def fits(self) -> bool:
        """Whether classes and shape are the paper's, and the counts where it is complete."""
        return (self.classes, self.shape) == (self.published.classes, self.published.shape)


def run(scale: Scale, bench: Bench) -> Iterator[Outcome]:
    """Load every dataset from its files and count; the same at every scale."""
    found = []
    with bench.watch.steps("datasets", len(PUBLISHED)) as done:
        for name in PUBLISHED:
            found.append(_count(name))
            done()
    subsets = [one.published.shown for one in found if one.state == "subset"]
    absent = [one.published.shown for one in found if one.state == "absent"]
    at_hand = [one for one in found if one.state != "absent"]
    complete = [one.published.shown for one in found if one.state == "complete"]
    remarks = [
        f"{kind}: {', '.join(names)}"
        for kind, names in (("subsets", subsets), ("absent", absent))
        if names
    ]
    yield Outcome(
        item="datasets",
        title=" · ".join(["Table IV · the datasets", *remarks]),
        scale=scale,
        settings={},
        tables=[_table(found)],
        claims=[
            Claim(
                "samples, classes and input sizes of Table IV",
                f"complete with the same counts: {', '.join(complete) or 'none'}; classes and "
                f"input size agree for {sum(one.fits for one in at_hand)} of {len(at_hand)}",
                all(one.fits for one in at_hand) if at_hand else None,
            )
        ],
        data={
            name: {"state": one.state, "train": one.train, "test": one.test}
            for name, one in zip(PUBLISHED, found, strict=True)
        },
    )


def _count(name: str) -> Found:
    try:
        dataset = load_files(name)
    except AbsentError:
        return Found(PUBLISHED[name])
    counts = (len(dataset.train), len(dataset.test))
    return Found(PUBLISHED[name], *counts, dataset.classes, dataset.shape)


def _table(found: list[Found]) -> Table:
    rows = [
        (
            one.published.shown,
            f"{one.published.train:,} / {one.published.test:,}",
            f"{one.train:,} / {one.test:,}" if one.train else "–",
            str(one.published.classes),
            "×".join(map(str, one.published.shape)),
            one.state,
        )
        for one in found
    ]
    head = ("", "in the paper", "at hand", "classes", "input", "")
    return Table("The datasets of the paper, and what is at hand of them.", head, rows)
