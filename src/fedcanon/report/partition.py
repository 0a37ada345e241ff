"""Tables and pictures of a partition: how different the clients' labels and sizes are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.markup import escape
from rich.table import Table

from fedcanon.data.partition.skew import Counts
from fedcanon.text import printable

LISTED = 15
"""Up to so many clients are listed one by one in a table; more are summarised by quantiles."""
CIRCLES = 50
"""Up to so many clients are drawn as circles; more are drawn as a heat map."""
COLUMNS = 400
"""The largest number of columns of a heat map; with more clients, neighbours share one."""
QUANTILES = {"smallest": 0.0, "10 %": 0.1, "median": 0.5, "90 %": 0.9, "largest": 1.0}
BLUE = "#3b5bdb"


def client_table(counts: Counts, names: Sequence[str] = ()) -> Table:
    """A table of the clients' samples, classes and share of their largest class.

    Args:
        counts: How many samples of each class (column) each client (row) has.
        names: What the clients are called; by default they are numbered.
    """
    sizes = counts.sum(1)
    columns = [sizes, (counts > 0).sum(1), counts.max(1) / sizes]
    table = Table(box=None, padding=(0, 2), header_style="dim")
    for name in ("client" if len(counts) <= LISTED else "", "samples", "classes", "largest class"):
        table.add_column(name, justify="right")
    if len(counts) <= LISTED:
        called = names if len(names) == len(counts) else [str(k) for k in range(len(counts))]
        rows = {name: [column[k] for column in columns] for k, name in enumerate(called)}
    else:
        rows = {
            name: [np.quantile(column, q, method="nearest") for column in columns]
            for name, q in QUANTILES.items()
        }
    for name, (samples, classes, share) in rows.items():
        table.add_row(escape(printable(name)), f"{samples:,}", f"{classes:,}", f"{share:.1%}")
    return table


def plot_partition(counts: Counts, title: str) -> Figure:
    """Draw the labels of every client, as circles or, for many clients, as a heat map.

    Args:
        counts: How many samples of each class (column) each client (row) has.
        title: The title of the picture.
    """
    figure = _circles(counts) if len(counts) <= CIRCLES else _heat_map(counts)
    figure.suptitle(title, fontsize=11)
    return figure


def _circles(counts: Counts) -> Figure:
    clients, classes = counts.shape
    cell = min(0.42, 11 / clients, 9 / classes)
    size = (max(cell * clients, 3.5) + 1.2, max(cell * classes, 1.5) + 1.3)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    client, label = counts.nonzero()
    held = counts[client, label]
    # Squared diameters in points: the largest circle fills its cell, the smallest can be seen.
    areas = np.maximum((66 * cell) ** 2 * held / held.max(), 1)
    axes.scatter(client, label, s=areas, color=BLUE, linewidths=0)
    axes.set_xlim(-0.7, clients - 0.3)
    axes.set_ylim(-0.7, classes - 0.3)
    axes.set_xlabel(f"client (largest circle: {held.max():,} samples)")
    axes.grid(alpha=0.2)
    axes.set_axisbelow(True)
    axes.set_xticks(_ticks(clients, 25))
    axes.set_yticks(_ticks(classes, 25))
    axes.set_ylabel("label")
    return figure


def _heat_map(counts: Counts) -> Figure:
    """The sizes of the clients, and below them the shares of their labels."""
    clients, classes = counts.shape
    sizes = counts.sum(1)
    columns = np.stack([shares for _, shares in columns_of(counts)])
    figure = Figure(figsize=(9, min(max(classes * 0.2, 2), 8) + 2.4), layout="constrained")
    upper, lower = figure.subplots(2, 1, height_ratios=[1, max(1.6, classes * 0.12)])
    upper.fill_between(np.arange(clients), np.sort(sizes)[::-1], color=BLUE, linewidth=0)
    upper.set_xlim(0, clients - 1)
    upper.set_ylim(0, None)
    upper.set_ylabel("samples")
    upper.set_xlabel("clients, largest first")
    upper.spines[["top", "right"]].set_visible(False)
    image = lower.imshow(
        columns.T,
        aspect="auto",
        origin="lower",
        interpolation="nearest",
        cmap="Blues",
        vmin=0,
        extent=(0, clients, -0.5, classes - 0.5),
    )
    lower.set_xlabel("clients, by their commonest label")
    lower.set_yticks(_ticks(classes, 25))
    lower.set_ylabel("label")
    colours = figure.colorbar(image, ax=lower, pad=0.01)
    colours.set_label("share of the client's samples")
    colours.ax.yaxis.set_major_formatter("{x:.0%}")
    return figure


def columns_of(counts: Counts) -> list[tuple[NDArray[np.integer], NDArray[np.floating]]]:
    """The columns of a heat map: the clients in each, and the mean share of every label.

    Clients are sorted by their commonest label.
    """
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    order = np.lexsort((-shares.max(1), shares.argmax(1)))
    groups = np.array_split(order, min(len(order), COLUMNS))
    return [(clients, shares[clients].mean(0)) for clients in groups]


def _ticks(count: int, most: int) -> range:
    return range(0, count, -(-count // most))
