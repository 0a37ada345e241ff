"""How the data are spread over the clients, and how well the final model suits each of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedcanon.report.page.curves import shortened
from fedcanon.report.page.groups import Group
from fedcanon.report.page.reading import Run
from fedcanon.report.partition import CIRCLES, COLUMNS


def partitions(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """The different partitions behind the runs, each with the clients' losses of its runs."""
    found: dict[str, dict[str, Any]] = {}
    for position, group in enumerate(groups):
        for run in group.runs:
            if run.data is None or not run.data.label_counts:  # a deployment does not tell
                continue
            entry = found.setdefault(json.dumps(run.data.label_counts), _partition(run))
            if run.records and run.records[-1].client_losses:
                losses = [shortened(loss) for loss in run.records[-1].client_losses]
                entry["losses"].append(
                    {"group": position, "round": run.records[-1].round, "values": losses}
                )
    return list(found.values())


def _partition(run: Run) -> dict[str, Any]:
    data, config = run.data, run.config
    counts = np.array(data.label_counts if data else [])
    title = f"{config.data.name} · {config.data.partition} · seed {config.seed}"
    entry = {"title": title, "losses": [], "sizes": counts.sum(1).tolist()}
    if len(counts) <= CIRCLES:
        return entry | {"counts": counts.tolist()}
    return entry | _heat_map(counts)


def _heat_map(counts: np.ndarray) -> dict[str, Any]:
    """Shares of the labels, clients in the order of their commonest; neighbours may share one."""
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    order = np.lexsort((-shares.max(1), shares.argmax(1)))
    columns = np.array_split(order, min(len(order), COLUMNS))
    names = [f"client {own[0]}" if len(own) == 1 else f"{len(own)} clients" for own in columns]
    return {
        "shares": [shares[own].mean(0).round(4).tolist() for own in columns],
        "columns": names,
    }
