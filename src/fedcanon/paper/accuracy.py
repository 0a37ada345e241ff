"""Table VI: test accuracy of FedCanon, FedDR and FedADMM.

FEMNIST, CIFAR-10, CINIC-10 and Tiny ImageNet, a CNN and ResNet-18, i.i.d. and Dir(0.2), with SCAD.
Clients of FedDR and FedADMM solve their subproblems by K mini-batch steps, as in the paper. In
every row each method has two steps chosen by validation from a grid: β and α, or β and η. All grids
have the same size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any

from matplotlib.figure import Figure

from fedcanon.errors import FedcanonError
from fedcanon.paper import kept_rows
from fedcanon.paper.accuracy_rows import ROWS, Row
from fedcanon.paper.curves import Panel, draw
from fedcanon.paper.extrapolation import suggested
from fedcanon.paper.methods import DAMPED, as_published
from fedcanon.paper.networks import SCAD, Lengths
from fedcanon.paper.outcome import Claim, Finding, Outcome, Scale, Table, judged
from fedcanon.paper.trials import Trainer, portion, run_settings
from fedcanon.paper.tuning import FLOOR, Grid, Results, Shape, Trained, Tuner, of_each
from fedcanon.paper.verdicts import RULES, best_known, budget, claim, to_nearest
from fedcanon.runs.config import Config
from fedcanon.runs.named import make_dataset
from fedcanon.search.selection import HELD_OUT

METHODS = ("FedCanon", "FedCanon+", DAMPED, "FedDR", "FedADMM")
BASELINES = ("FedDR", "FedADMM")
UNJUDGED = ("cinic10",)
"""Datasets of which only a sample without a split may be at hand: no verdict on a subset."""
PAPER_ROUNDS = 200
"""T in the paper's figures and Table V; it gives none for Table VI."""


@dataclass(frozen=True)
class RowLengths(Lengths):
    """How the rows of one model are run; of all this the paper gives only α = 0.1."""

    every: int | None = 25
    betas: tuple[float, ...] = (0.005, 0.01, 0.02, 0.05)
    alphas: tuple[float, ...] = (0.1, 0.2, 0.4, 1.0)
    """α of FedCanon and FedCanon+."""
    etas: tuple[float, ...] = (0.5, 2.0, 8.0, 32.0)
    """η of FedDR, as many as there are α; FedADMM's is 1/η."""
    tuning_rounds: int = 200
    samples: tuple[int | None, int | None] = (None, None)
    seeds: tuple[int, ...] = (0, 1, 2)

    @property
    def trials(self) -> int:
        """How many points the grid of every method has."""
        return len(self.betas) * len(self.alphas)

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
                every=1,
                clients=3,
                local_steps=2,
                batch_size=4,
                betas=(0.05,),
                alphas=(0.1,),
                etas=(2.0,),
                tuning_rounds=1,
                samples=(100, 40),
                seeds=(0, 1),
            )
        },
    ),
    Scale.laptop: Plan(
        ROWS[:8],  # those of the CNN, and CIFAR-10 with ResNet-18
        {
            "cnn": RowLengths(
                local_steps=10,
                batch_size=8,
                betas=(0.03, 0.1),
                alphas=(0.25, 0.5, 1.0),
                etas=(0.5, 2.0, 8.0),
                tuning_rounds=20,
            ),
            "resnet18": RowLengths(
                rounds=80,  # all methods, steps and seeds then take less than three hours
                every=10,
                local_steps=5,
                batch_size=16,
                betas=(0.02, 0.1),
                alphas=(0.1, 0.5),
                etas=(0.5, 2.0),
                tuning_rounds=8,
                samples=(20_000, 2000),
            ),
        },
    ),
    Scale.paper: Plan(ROWS, {"cnn": RowLengths(), "resnet18": RowLengths()}),
}

Found = Mapping[Shape, Mapping[Row, Mapping[str, Trained]]]
"""The trainings by the shape of steps, row and method."""
Notes = Mapping[Row, str]
"""Which part of its dataset each row uses; empty where it uses all."""
Kept = tuple[str, kept_rows.ByMethod]
"""The note of a row, and its trainings with one shape of steps."""


def run(scale: Scale, trainer: Trainer, only: Sequence[str] = ()) -> Iterator[Outcome]:
    """Run row by row, with constant steps and then with falling ones.

    There is an outcome after each of these parts, so that a long job shows what it has. Each part
    is kept as a file in the folder ``rows`` beside the trainings. It stands in every outcome from
    then on and is not run again, here and wherever the file is put.

    Args:
        scale: The scale.
        trainer: Trains, or loads what is finished.
        only: The names of the rows to run; all of the scale if there are none.

    Raises:
        FedcanonError: A row is not one of the scale.
    """
    plan = PLANS[scale]
    known = [row.name for row in plan.rows]
    unknown = [name for name in only if name not in known]
    if unknown:
        raise FedcanonError(
            f"'{unknown[0]}' is no row of Table VI at the scale {scale}: take {', '.join(known)}."
        )
    parts = [(row, shape) for row in plan.rows for shape in Shape]
    folder = trainer.folder.parent / "rows"
    files = {(row, shape): folder / f"{row.name}-{shape}.json" for row, shape in parts}
    keys = {(row, shape): _key(plan.lengths[row.model], row, shape) for row, shape in parts}
    kept = {part: kept_rows.load(files[part], keys[part], part[1]) for part in parts}
    missing = [part for part in parts if not kept[part] and (not only or part[0].name in only)]
    if any(kept.values()):
        yield _outcome(scale, plan, kept)
    for part in missing:
        kept[part] = done = _trained(plan.lengths[part[0].model], *part, trainer)
        kept_rows.keep(files[part], keys[part], *done)
        yield _outcome(scale, plan, kept)


def _key(lengths: RowLengths, row: Row, shape: Shape) -> str:
    """A text that is the same for rows that were run with the same settings."""
    settings = [
        (run_settings(_config(lengths, row, method)), lengths.grid(method)) for method in METHODS
    ]
    told = f"{asdict(lengths)} {settings} {shape} {FLOOR} {HELD_OUT}"
    return blake2b(told.encode(), digest_size=16).hexdigest()


def _trained(lengths: RowLengths, row: Row, shape: Shape, trainer: Trainer) -> Kept:
    """Which part of its dataset a row uses, and its trainings."""
    dataset = portion(make_dataset({"name": row.dataset}), *lengths.samples)
    tuner = Tuner(
        trainer, dataset, lengths.tuning_rounds, lengths.seeds, every=lengths.tuning_rounds
    )
    found = {
        method: tuner.train(
            f"{method}, {row.label}, {shape}",
            _config(lengths, row, method),
            lengths.grid(method),
            shape,
        )
        for method in METHODS
    }
    return dataset.note, found


def _config(lengths: RowLengths, row: Row, method: str) -> Config:
    # The authors of FedDR run it on networks with this relaxation.
    own = {"relaxation": 1.95} if method == "FedDR" else {}
    algorithm = {**as_published(method), **own}
    return lengths.config(row.dataset, row.partition, row.model, SCAD, algorithm, clients=False)


def _outcome(scale: Scale, plan: Plan, parts: Mapping[tuple[Row, Shape], Kept | None]) -> Outcome:
    notes = _notes(parts)
    found = {
        shape: {row: kept[1] for (row, own), kept in parts.items() if kept and own is shape}
        for shape in Shape
    }
    subsets = dict.fromkeys(
        f"{row.dataset_and_model} {note}" for row, note in notes.items() if note
    )
    by_label = {
        shape: {row.label: by_method for row, by_method in results.items()}
        for shape, results in found.items()
    }
    best = best_known(_complete(by_label))
    return Outcome(
        title=" · ".join(["Table VI · test accuracy with SCAD", *subsets]),
        scale=scale,
        settings={
            "penalty": SCAD,
            **{model: asdict(own) for model, own in plan.lengths.items()},
            "grids": {s: of_each(rows, lambda one: one.grid) for s, rows in by_label.items()},
            "steps": {s: of_each(rows, lambda one: one.settings) for s, rows in by_label.items()},
        },
        tables=[_table(found), *_suggestions(plan, found[Shape.constant])],
        claims=judged(scale, list(_claims(found, notes))),
        data={
            **{f"{s} steps": of_each(rows, _numbers) for s, rows in by_label.items()},
            "best known": of_each(best, lambda one: one.shape),
        },
        notes=[
            *_protocols(plan, notes),
            "below each row is the paper's; rows without numbers are not run at the scale "
            f"{scale}, or not yet. Where all steps diverge, the accuracy is 0.",
            f"T = {PAPER_ROUNDS} is that of the paper's other experiments; of Table VI it gives "
            "neither T nor K nor batch. What shorter curves suggest for it is an extrapolation and "
            "not a result: a power law a − b t^(−c), fitted to the mean curve with constant steps; "
            "– where it does not fit, has too few points or diverged.",
            "on FEMNIST writers are dealt out by Dir(0.2), elsewhere labels.",
            "FedDR has relaxation 1.95, as its authors run it; with relaxation 1 it is FedADMM "
            "with 1/η.",
        ],
        figure=_figure(found),
    )


def _notes(parts: Mapping[tuple[Row, Shape], Kept | None]) -> dict[Row, str]:
    """Which part of its dataset each row uses."""
    notes: dict[Row, str] = {}
    for (row, shape), kept in parts.items():
        if kept and notes.setdefault(row, kept[0]) != kept[0]:
            raise FedcanonError(
                f"the row {row.name} was run on different data with its two kinds of steps "
                f"({notes[row] or 'all samples'}, and {kept[0] or 'all samples'}): remove "
                f"rows/{row.name}-{shape}.json or the file beside it, and that part is run again."
            )
    return notes


def _complete(by_shape: Mapping[Shape, Results]) -> dict[Shape, Results]:
    """The results of those rows that were run with all shapes of steps."""
    return {
        shape: {
            label: by_method
            for label, by_method in results.items()
            if all(label in others for others in by_shape.values())
        }
        for shape, results in by_shape.items()
    }


def _protocols(plan: Plan, notes: Notes) -> list[str]:
    """The notes of the protocol, for each model that has rows."""
    models = dict.fromkeys(row.model for row in notes)
    budgets = [
        f"{model}, {own.rounds} rounds: {budget(own.trials, own.tuning_rounds, own.seeds, 'row')}"
        for model, own in plan.lengths.items()
        if model in models
    ]
    return [*budgets, *RULES]


def _numbers(trained: Trained) -> dict[str, Any]:
    return {
        "accuracies": trained.accuracies,
        "round, accuracy": [
            [(record.round, record.test["accuracy"]) for record in training.records]
            for training in trained.trainings
        ],
        "diverged": [training.diverged for training in trained.trainings],
    }


def _figure(found: Found) -> Figure:
    """Learning curves, a line for each row and a panel in it for each shape of steps."""
    panels = []
    for row in ROWS:
        for shape, results in found.items():
            if row in results:
                curves = {method: trained.curve for method, trained in results[row].items()}
                title = f"{row.label}, {shape}"
                panels.append(Panel(title, "round", "test accuracy", curves, after_start=True))
    return draw(panels, columns=len(Shape))


def _percent(mean: float, deviation: float) -> str:
    return f"{100 * mean:.2f}±{100 * deviation:.2f}"


def _table(found: Found) -> Table:
    rows: list[tuple[str, ...]] = []
    not_run = ["not run", *[""] * (len(METHODS) - 1)]
    for row in ROWS:
        own = {f"{row.label}, {shape}": results.get(row) for shape, results in found.items()}
        for label, by_method in own.items() if any(own.values()) else [(row.label, None)]:
            cells = not_run
            if by_method:
                trained = [by_method[method] for method in METHODS]
                cells = [_percent(each.accuracy, each.deviation) for each in trained]
            rows.append((label, *cells))
        paper = [_percent(*row.paper[m]) if m in row.paper else "" for m in METHODS]
        rows.append(("  the paper", *paper))
    return Table("Test accuracy of the final model in percent.", ("", *METHODS), rows)


def _suggestions(plan: Plan, constant: Mapping[Row, Mapping[str, Trained]]) -> Iterator[Table]:
    """What curves with constant steps suggest for the paper's number of rounds, if it is larger."""

    def suggestion(trained: Trained) -> str:
        x, means, _ = trained.curve
        value = None if trained.diverged else suggested(x, means, PAPER_ROUNDS)
        return "–" if value is None else f"{100 * value:.0f}"

    rows = [
        (row.label, *(suggestion(by_method[method]) for method in METHODS))
        for row, by_method in constant.items()
        if plan.lengths[row.model].rounds < PAPER_ROUNDS
    ]
    caption = (
        f"Extrapolation, not a result: what the curves with constant steps suggest after "
        f"{PAPER_ROUNDS} rounds, in percent."
    )
    if rows:
        yield Table(caption, ("", *METHODS), rows)


def _claims(found: Found, notes: Notes) -> Iterator[Claim]:
    """In every row FedCanon is ahead of both baselines."""
    for row, by_method in found[Shape.constant].items():
        note = notes[row]
        of_row = {s: {row.label: results[row]} for s, results in found.items() if row in results}
        margin = row.paper["FedCanon"][0] - max(row.paper[method][0] for method in BASELINES)

        def judge(results: Results, ours: str, row: Row = row, note: str = note) -> Finding:
            by_method = results[row.label]
            other, margin = to_nearest(by_method, ours, BASELINES)
            unjudged = row.dataset in UNJUDGED and note
            return Finding(f"{margin.shown} points to {other}", None if unjudged else margin.ahead)

        yield claim(
            f"{row.label}: FedCanon is ahead of FedDR and FedADMM, by {100 * margin:.1f} points",
            judge,
            {row.label: by_method},
            best_known(of_row) if len(of_row) == len(Shape) else None,
        )
