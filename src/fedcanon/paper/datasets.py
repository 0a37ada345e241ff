"""Table IV: the datasets, counted as they are at hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from fedcanon.data.sources import load_files
from fedcanon.data.sources.source import AbsentError
from fedcanon.paper.outcome import Claim, Outcome, Table
from fedcanon.paper.scales import Scale
from fedcanon.paper.trials import Trainer


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
        """complete, subset, different or absent."""
        if not self.train:
            return "absent"
        counts = (self.train - self.published.train, self.test - self.published.test)
        if max(counts) > 0 or self.looks != (self.published.classes, self.published.shape):
            return "different"
        return "subset" if any(counts) else "complete"

    @property
    def looks(self) -> tuple[int, tuple[int, ...]]:
        """Classes and the shape of an input."""
        return self.classes, self.shape


def run(scale: Scale, trainer: Trainer) -> Iterator[Outcome]:
    """Load every dataset from its files and count; the same at every scale."""
    found = []
    with trainer.watch.steps("datasets", len(PUBLISHED)) as done:
        for name in PUBLISHED:
            found.append(_count(name))
            done()
    subsets = [one.published.shown for one in found if one.state == "subset"]
    absent = [one.published.shown for one in found if one.state == "absent"]
    different = [one.published.shown for one in found if one.state == "different"]
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
                "samples, classes and input sizes are those of Table IV",
                f"the same in all: {', '.join(complete) or 'none'}; classes and input size, with "
                f"fewer samples at hand: {', '.join(subsets) or 'none'}; different: "
                f"{', '.join(different) or 'none'}",
                not different if complete or different else None,
            )
        ],
        data={
            name: {key: value for key, value in asdict(one).items() if key != "published"}
            | {"state": one.state}
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
