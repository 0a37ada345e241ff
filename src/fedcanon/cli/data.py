"""``fedcanon data``: a dataset, and how a partition splits it among clients."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated

import typer

from fedcanon.cli.app import DataSettings, app, console, dataset_options, plain


@app.command()
def data(
    name: Annotated[str, typer.Argument(help="A dataset.", show_default=False)],
    set_: DataSettings = None,
    partition: Annotated[str, typer.Option(help="How it is split.")] = "dirichlet:0.2",
    clients: Annotated[int, typer.Option(min=1, help="Number of clients.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Seed, as in a configuration.")] = 0,
    plot: Annotated[Path | None, typer.Option(help="Write a picture of the partition.")] = None,
) -> None:
    """Show a dataset, and how different the clients are that a partition makes of it."""
    from fedcanon.data import make_partition
    from fedcanon.data.partition.skew import label_counts, label_skew, size_skew
    from fedcanon.randomness import Purpose, generator
    from fedcanon.report.partition import client_table, plot_partition
    from fedcanon.runs.named import make_dataset
    from fedcanon.runs.plots import check_writable, save

    source = {"name": name, **dataset_options(set_ or [], "NAME and --partition say the rest")}
    rule = make_partition(partition)
    if plot:
        check_writable(plot)
    with console.status("loading data …"):
        dataset = make_dataset(source)
        train = dataset.train
        rng = generator(seed, Purpose.PARTITION)
        parts = rule.parts(train.targets, clients, rng, train.users)
        counts = label_counts(train.targets, parts, dataset.classes)
    shape = "×".join(map(str, dataset.shape))
    console.print(
        f"[bold]{plain(dataset.name)}[/] · {len(train):,} training and "
        f"{len(dataset.test):,} test samples · {dataset.classes} classes · inputs {shape}",
    )
    if dataset.note:
        console.print(f"[yellow]note[/] {plain(dataset.note)}")
    headline = f"{dataset.name} · {clients:,} clients · {partition} · seed {seed}"
    about = (inspect.getdoc(rule) or "").partition("\n")[0]
    console.print(f"[bold]{plain(partition)}[/] · {about}\n")
    users = dataset.names.users if partition == "users" else ()
    console.print(client_table(counts, users))
    console.print(
        f"\nlabel skew {label_skew(counts):.3f} · mean total-variation distance from all labels\n"
        f"size skew  {size_skew(counts):.3f} · standard deviation of the sizes over their mean",
    )
    if plot:
        save(plot_partition(counts, headline), plot)
        console.print(f"picture written to {plain(plot)}")
