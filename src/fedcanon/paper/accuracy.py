"""Table VI: test accuracy of FedCanon, FedDR and FedADMM.

FEMNIST, CIFAR-10, CINIC-10 and Tiny ImageNet, a CNN and ResNet-18, i.i.d. and Dir(0.2), with SCAD.
Clients of FedDR and FedADMM solve their subproblems by K mini-batch steps, as in the paper. In
every row each method has two steps chosen by validation from a grid: β and α, or β and η. That of
the baselines is the larger one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from matplotlib.figure import Figure

from fedcanon.paper.datasets import PUBLISHED
from fedcanon.paper.methods import as_published
from fedcanon.paper.networks import SCAD, Lengths
from fedcanon.paper.outcome import Claim, Outcome, Scale, Table, judged
from fedcanon.paper.trials import SAME_ACCURACY, Trainer, portion
from fedcanon.paper.tuning import Grid, Trained, Tuner, of_each
from fedcanon.runs.config import Config
from fedcanon.runs.named import make_dataset
from fedcanon.runs.plots import COLOURS

METHODS = ("FedCanon", "FedCanon+", "FedDR", "FedADMM")
BASELINES = ("FedDR", "FedADMM")
UNJUDGED = ("cinic10",)
"""Datasets of which only a sample without a split may be at hand: no verdict on a subset."""
MODELS = {"cnn": "CNN", "resnet18": "ResNet-18"}
PARTITIONS = {"iid": "i.i.d.", "dirichlet:0.2": "Dir(0.2)", "writers:0.2": "Dir(0.2)"}


@dataclass(frozen=True)
class Row:
    """A row of the table, with the accuracies and deviations that the paper prints."""

    dataset: str
    model: str
    partition: str
    paper: dict[str, tuple[float, float]] = field(hash=False)

    @property
    def dataset_and_model(self) -> str:
        """Dataset and model as the paper writes them."""
        return f"{PUBLISHED[self.dataset].name} {MODELS[self.model]}"

    @property
    def label(self) -> str:
        """Dataset, model and partition as the paper writes them."""
        return f"{self.dataset_and_model} {PARTITIONS[self.partition]}"


def _row(dataset: str, model: str, partition: str, *numbers: float) -> Row:
    methods = ("FedCanon", "FedDR", "FedADMM")
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    return Row(dataset, model, partition, dict(zip(methods, pairs, strict=True)))


ROWS = (
    _row("femnist", "cnn", "iid", 0.7679, 0.0124, 0.7130, 0.0209, 0.7136, 0.0254),
    _row("femnist", "cnn", "writers:0.2", 0.7570, 0.0005, 0.7059, 0.0127, 0.7095, 0.0058),
    _row("cifar10", "cnn", "iid", 0.6505, 0.0066, 0.5591, 0.0065, 0.5957, 0.0087),
    _row("cifar10", "cnn", "dirichlet:0.2", 0.6333, 0.0131, 0.5015, 0.0065, 0.3557, 0.0086),
    _row("cinic10", "cnn", "iid", 0.4906, 0.0007, 0.4156, 0.0247, 0.4310, 0.0108),
    _row("cinic10", "cnn", "dirichlet:0.2", 0.3357, 0.0301, 0.3250, 0.0059, 0.1803, 0.0123),
    _row("cifar10", "resnet18", "iid", 0.7201, 0.0052, 0.6592, 0.0167, 0.6182, 0.0143),
    _row("cifar10", "resnet18", "dirichlet:0.2", 0.6966, 0.0062, 0.6519, 0.0278, 0.5644, 0.0359),
    _row("femnist", "resnet18", "iid", 0.8523, 0.0015, 0.7983, 0.0140, 0.7980, 0.0219),
    _row("femnist", "resnet18", "writers:0.2", 0.8361, 0.0010, 0.7899, 0.0033, 0.7939, 0.0023),
    _row("cinic10", "resnet18", "iid", 0.5491, 0.0026, 0.5415, 0.0086, 0.5124, 0.0127),
    _row("cinic10", "resnet18", "dirichlet:0.2", 0.4956, 0.0033, 0.4519, 0.0114, 0.4726, 0.0194),
    _row("tiny_imagenet", "resnet18", "iid", 0.3569, 0.0045, 0.2208, 0.0176, 0.2206, 0.0177),
    _row(
        "tiny_imagenet", "resnet18", "dirichlet:0.2", 0.2969, 0.0024, 0.1849, 0.0207, 0.1978, 0.0109
    ),
)
"""The rows in the order in which they are run: what takes longest comes last."""


@dataclass(frozen=True)
class RowLengths(Lengths):
    """How the rows of one model are run; of all this the paper gives only α = 0.1."""

    betas: tuple[float, ...] = (0.005, 0.01, 0.02, 0.05)
    alphas: tuple[float, ...] = (0.1, 0.2, 0.4, 1.0)
    """α of FedCanon and FedCanon+."""
    etas: tuple[float, ...] = (0.125, 0.5, 2.0, 8.0, 32.0)
    """η of FedDR; FedADMM's is 1/η."""
    tuning_rounds: int = 200
    samples: tuple[int | None, int | None] = (None, None)
    seeds: tuple[int, ...] = (0, 1, 2)

    def grid(self, method: str) -> Grid:
        """The settings among which validation chooses."""
        if method == "FedDR":
            return {"beta": self.betas, "eta": self.etas}
        if method == "FedADMM":
            return {"beta": self.betas, "eta": [1 / eta for eta in self.etas]}
        return {"beta": self.betas, "alpha": self.alphas}


@dataclass(frozen=True)
class Plan:
    """The rows that a scale runs, and how those of each model are run."""

    rows: tuple[Row, ...]
    lengths: dict[str, RowLengths]


PLANS = {
    Scale.smoke: Plan(
        ROWS[1:2],
        {
            "cnn": RowLengths(
                rounds=2,
                clients=3,
                local_steps=2,
                batch_size=4,
                betas=(0.05,),
                alphas=(0.1,),
                etas=(2.0,),
                tuning_rounds=1,
                samples=(200, 100),
                seeds=(0, 1),
            )
        },
    ),
    Scale.laptop: Plan(
        ROWS[:7],  # those of the CNN, and CIFAR-10 with ResNet-18, i.i.d.
        {
            "cnn": RowLengths(
                rounds=20,
                local_steps=10,
                batch_size=8,
                betas=(0.03, 0.1),
                alphas=(0.25, 0.5, 1.0),
                etas=(0.125, 0.5, 2.0, 8.0, 32.0),
                tuning_rounds=10,
                samples=(8000, 2000),
                seeds=(0, 1),
            ),
            "resnet18": RowLengths(
                rounds=40,
                local_steps=5,
                batch_size=16,
                betas=(0.02, 0.1),
                alphas=(0.1, 0.5),
                etas=(0.5, 2.0),
                tuning_rounds=10,
                samples=(4000, 2000),
                seeds=(0,),
            ),
        },
    ),
    Scale.paper: Plan(ROWS, {"cnn": RowLengths(), "resnet18": RowLengths()}),
}

Found = Mapping[Row, Mapping[str, Trained]]
"""The trainings by row and method."""
Notes = Mapping[Row, str]
"""Which part of its dataset each row uses; empty where it uses all."""


def run(scale: Scale, trainer: Trainer) -> Iterator[Outcome]:
    """Run row by row; the outcome is written after each, so that a long job shows what it has."""
    plan = PLANS[scale]
    found: dict[Row, dict[str, Trained]] = {}
    notes: dict[Row, str] = {}
    for row in plan.rows:
        lengths = plan.lengths[row.model]
        dataset = portion(make_dataset({"name": row.dataset}), *lengths.samples)
        tuner = Tuner(trainer, dataset, lengths.tuning_rounds, lengths.seeds)
        notes[row] = dataset.note
        found[row] = {
            method: tuner.train(
                f"{method}, {row.label}", _config(lengths, row, method), lengths.grid(method)
            )
            for method in METHODS
        }
        yield _outcome(scale, plan, found, notes)


def _config(lengths: RowLengths, row: Row, method: str) -> Config:
    # The authors of FedDR run it on networks with this relaxation.
    own = {"relaxation": 1.95} if method == "FedDR" else {}
    algorithm = {**as_published(method), **own}
    return lengths.config(row.dataset, row.partition, row.model, SCAD, algorithm)


def _outcome(scale: Scale, plan: Plan, found: Found, notes: Notes) -> Outcome:
    subsets = dict.fromkeys(
        f"{row.dataset_and_model} {note}" for row, note in notes.items() if note
    )
    by_label = {row.label: by_method for row, by_method in found.items()}
    lengths = {model: asdict(own) for model, own in plan.lengths.items()}
    for own in lengths.values():
        del own["every"]  # only the final model is measured
    return Outcome(
        title=" · ".join(["Table VI · test accuracy with SCAD", *subsets]),
        scale=scale,
        settings={
            "penalty": SCAD,
            **lengths,
            "grids": of_each(by_label, lambda trained: trained.grid),
            "steps": of_each(by_label, lambda trained: trained.settings),
        },
        tables=[_table(found)],
        claims=judged(scale, [_claim(found, notes)]),
        data=of_each(by_label, lambda trained: trained.accuracies),
        notes=[
            "mean ± standard deviation over seeds, and below it the paper's; rows without numbers "
            f"are not run at the scale {scale}, or not yet.",
            "where a run diverges the next best steps are taken for all seeds; where all diverge, "
            "the accuracy is 0.",
            "on FEMNIST writers are dealt out by Dir(0.2), elsewhere labels.",
            "in every row β and α, or β and η, are chosen by validation.",
            "FedDR has relaxation 1.95, as its authors run it; with relaxation 1 it is FedADMM "
            "with 1/η.",
        ],
        figure=_figure(found),
    )


def _figure(found: Found) -> Figure:
    """A group of marks for each row: filled ones are measured, hollow ones the paper's."""
    figure = Figure(figsize=(1.6 + 1.5 * len(found), 3.8), layout="constrained")
    axes = figure.subplots()
    for place, method in enumerate(METHODS):
        across = [number + (place - 1.5) / 6 for number in range(len(found))]
        style: dict[str, Any] = {"color": COLOURS[place], "linestyle": "none", "markersize": 6}
        means = [100 * by_method[method].accuracy for by_method in found.values()]
        errors = [100 * by_method[method].deviation for by_method in found.values()]
        axes.errorbar(across, means, errors, marker="o", label=method, capsize=2, **style)
        papers = [100 * row.paper[method][0] for row in found if method in row.paper]
        if papers:
            axes.plot(across, papers, marker="o", markerfacecolor="none", **style)
    axes.plot([], [], "o", color="grey", markerfacecolor="none", label="in the paper")
    axes.set_xticks(range(len(found)), [row.label.replace(" ", "\n") for row in found], fontsize=8)
    axes.set_ylabel("test accuracy in percent")
    axes.grid(axis="y", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    return figure


def _percent(mean: float, deviation: float) -> str:
    return f"{100 * mean:.2f}±{100 * deviation:.2f}"


def _shown(trained: Trained) -> str:
    """Mean and deviation in percent; only the mean where there is one seed."""
    text = _percent(trained.accuracy, trained.deviation)
    return text if len(trained.trainings) > 1 else text.partition("±")[0]


def _table(found: Found) -> Table:
    rows: list[tuple[str, ...]] = []
    for row in ROWS:
        nothing = ["not run"] + [""] * (len(METHODS) - 1)
        cells = [_shown(found[row][method]) for method in METHODS] if row in found else nothing
        paper = [_percent(*row.paper[m]) if m in row.paper else "" for m in METHODS]
        rows += [(row.label, *cells), ("  the paper", *paper)]
    return Table("Test accuracy of the final model in percent.", ("", *METHODS), rows)


def _claim(found: Found, notes: Notes) -> Claim:
    margins = {}
    for row, by_method in found.items():
        if row.dataset in UNJUDGED and notes[row]:
            continue
        best = max(BASELINES, key=lambda method: by_method[method].accuracy)
        ours, theirs = by_method["FedCanon"], by_method[best]
        spread = max(ours.deviation, theirs.deviation)
        margins[row] = (ours.accuracy - theirs.accuracy, best, spread)
    shown = "; ".join(
        f"{row.label}: {100 * margin:+.1f} points to {best} (deviation {100 * spread:.1f})"
        for row, (margin, best, spread) in margins.items()
    )
    ahead = [margin > max(SAME_ACCURACY, spread) for margin, _, spread in margins.values()]
    return Claim(
        "FedCanon has a higher test accuracy than FedDR and FedADMM in every row",
        "ahead of the better of both by more than a point and the deviation over seeds in "
        f"{sum(ahead)} of {len(ahead)} rows. {shown}",
        all(ahead) if ahead else None,
    )
