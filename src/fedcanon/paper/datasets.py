"""Table IV: the datasets, counted as they are at hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import NamedTuple

from fedcanon.data.sources import load_files
from fedcanon.data.sources.source import AbsentError
from fedcanon.paper.outcome import Claim, Outcome, Scale, Table
from fedcanon.paper.trials import Trainer


@dataclass(frozen=True)
class Counts:
    """Training and test samples, classes and the shape of an input; 0 where there is none."""

    train: int = 0
    test: int = 0
    classes: int = 0
    shape: tuple[int, ...] = ()

    @property
    def samples(self) -> str:
        """Training and test samples as text."""
        return f"{self.train:,} / {self.test:,}" if self.train else "–"

    def state(self, published: Counts) -> str:
        """What is at hand beside what the paper prints: complete, subset, different or absent."""
        if not self.train:
            return "absent"
        more = (self.train - published.train, self.test - published.test)
        if max(more) > 0 or (self.classes, self.shape) != (published.classes, published.shape):
            return "different"
        return "subset" if any(more) else "complete"


class Published(NamedTuple):
    """A dataset as the paper writes its name, and what the paper prints of it."""

    name: str
    counts: Counts


PUBLISHED = {
    "a9a": Published("A9A", Counts(32_561, 16_281, 2, (123,))),
    "mnist": Published("MNIST", Counts(60_000, 10_000, 10, (1, 28, 28))),
    "fashion_mnist": Published("Fashion-MNIST", Counts(60_000, 10_000, 10, (1, 28, 28))),
    "femnist": Published("FEMNIST", Counts(712_825, 92_438, 62, (1, 28, 28))),
    "cifar10": Published("CIFAR-10", Counts(50_000, 10_000, 10, (3, 32, 32))),
    "cinic10": Published("CINIC-10", Counts(90_000, 90_000, 10, (3, 32, 32))),
    "tiny_imagenet": Published("Tiny ImageNet", Counts(100_000, 10_000, 200, (3, 64, 64))),
}


def run(scale: Scale, trainer: Trainer) -> Iterator[Outcome]:
    """Load every dataset from its files and count; the same at every scale."""
    found = {}
    with trainer.watch.steps("datasets", len(PUBLISHED)) as done:
        for name in PUBLISHED:
            found[name] = _count(name)
            done()
    states = {name: counts.state(PUBLISHED[name].counts) for name, counts in found.items()}

    def those(state: str) -> str:
        return ", ".join(PUBLISHED[name].name for name in found if states[name] == state)

    complete, subsets, different = those("complete"), those("subset"), those("different")
    remarks = {"subsets": subsets, "absent": those("absent")}
    yield Outcome(
        title=" · ".join(
            ["Table IV · the datasets", *(f"{kind}: {n}" for kind, n in remarks.items() if n)]
        ),
        scale=scale,
        settings={},
        tables=[_table(found, states)],
        claims=[
            Claim(
                "samples, classes and input sizes are those of Table IV",
                f"the same in all: {complete or 'none'}; classes and input size, with fewer "
                f"samples at hand: {subsets or 'none'}; different: {different or 'none'}",
                not different if complete or different else None,
            )
        ],
        data={name: {**asdict(counts), "state": states[name]} for name, counts in found.items()},
    )


def _count(name: str) -> Counts:
    try:
        dataset = load_files(name)
    except AbsentError:
        return Counts()
    return Counts(len(dataset.train), len(dataset.test), dataset.classes, dataset.shape)


def _table(found: dict[str, Counts], states: dict[str, str]) -> Table:
    rows = [
        (
            name,
            published.samples,
            found[key].samples,
            str(published.classes),
            "×".join(map(str, published.shape)),
            states[key],
        )
        for key, (name, published) in PUBLISHED.items()
    ]
    head = ("", "in the paper", "at hand", "classes", "input", "")
    return Table("The datasets of the paper, and what is at hand of them.", head, rows)
