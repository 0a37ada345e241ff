"""``fedcanon evaluate``: loss and accuracy of a trained network on test data."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from fedcanon.cli.app import (
    DataSettings,
    Trust,
    app,
    console,
    dataset_options,
    plain,
    table_of,
)
from fedcanon.errors import FedcanonError

if TYPE_CHECKING:
    from fedcanon.data import Dataset
    from fedcanon.export.evaluation import EvaluationByClass
    from fedcanon.export.trained import Trained

ROWS = 20
"""With more classes than this, the table has several blocks side by side."""
BLOCK = 26
"""The width of a block of the table, in characters."""


@app.command()
def evaluate(
    name: Annotated[str, typer.Argument(metavar="RUN", help="A run's folder or name.")],
    data: Annotated[
        str | None, typer.Option(metavar="NAME", help="Another dataset than the run's own.")
    ] = None,
    set_: DataSettings = None,
    trust: Trust = False,
) -> None:
    """Measure the model of a finished run on test data, overall and for each class."""
    from fedcanon.export.evaluation import evaluate as evaluate_on
    from fedcanon.export.trained import trained
    from fedcanon.runs.named import make_dataset, make_loss

    options = dataset_options(set_ or [], "--data names another dataset")
    network = trained(name, trust=trust)
    source = network.run.config.data.source if data is None else {"name": data}
    with console.status("loading data …"):
        dataset = make_dataset({**source, **options})
    _require_fit(network, dataset)
    if data is None and not options:
        _require_own(network, dataset)
    loss = make_loss(network.run.config.loss)
    found = evaluate_on(network.module, dataset.test, dataset.classes, loss)
    console.print(
        f"[bold]{plain(network.run.name)}[/] on {plain(dataset.name)} · {len(dataset.test):,} "
        f"test samples\nloss {found.loss:.4f} · accuracy {found.accuracy:.4f}\n",
    )
    console.print(_by_class(found, network.data.class_names))


def _require_fit(network: Trained, dataset: Dataset) -> None:
    run, expected = network.run.name, network.data
    if dataset.shape != expected.shape:
        found, wanted = ("×".join(map(str, shape)) for shape in (dataset.shape, expected.shape))
        raise FedcanonError(
            f"{dataset.name} has inputs of shape {found}, but the run {run} was trained on "
            f"{wanted}."
        )
    if dataset.classes != expected.classes:
        raise FedcanonError(
            f"{dataset.name} has {dataset.classes} classes, but the run {run} was trained on "
            f"{expected.classes}."
        )


def _require_own(network: Trained, dataset: Dataset) -> None:
    """Raise a FedcanonError if the run was given another dataset than its configuration names."""
    if network.data.name.partition(" (")[0] != dataset.name:
        raise FedcanonError(
            f"the run {network.run.name} was trained on {network.data.name}, which its "
            "configuration does not name: name a dataset with --data."
        )


def _by_class(found: EvaluationByClass, names: Sequence[str]) -> Table:
    """A table of the samples and the accuracy of every class, by name where it has one."""
    samples, correct = found.samples.tolist(), found.correct.tolist()
    labels = names or [str(label) for label in range(len(samples))]
    cells = [
        (plain(label), f"{count:,}", f"{right / count:.1%}" if count else "–")
        for label, count, right in zip(labels, samples, correct, strict=True)
    ]
    blocks = max(1, min(console.width // BLOCK, ceil(len(cells) / ROWS)))
    rows = ceil(len(cells) / blocks)
    table = table_of(numbers=("class", "samples", "accuracy") * blocks)
    for row in range(rows):
        table.add_row(*(text for entry in cells[row::rows] for text in entry))
    return table
