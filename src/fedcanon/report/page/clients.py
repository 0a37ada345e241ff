"""How the data are spread over the clients, and how well the final model suits each of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedcanon.report.page.curves import shortened
from fedcanon.report.page.groups import Group
from fedcanon.report.page.reading import Run
from fedcanon.report.partition import CIRCLES, columns_of


def partitions(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """What the charts of clients show: an entry for each partition of the data in these runs.

    An entry holds the samples of every client and, for every run, the last losses of its clients.
    """
    found: dict[str, dict[str, Any]] = {}
    for position, group in enumerate(groups):
        for run in group.runs:
            if run.data is None or not run.data.label_counts:  # unknown in a deployment
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
    names = data.client_names if data else []
    entry = {
        "title": title,
        "losses": [],
        "sizes": counts.sum(1).tolist(),
        "clients": names or [str(client) for client in range(len(counts))],
        "labels": data.class_names if data else [],
    }
    if len(counts) <= CIRCLES:
        return entry | {"counts": counts.tolist()}
    columns = columns_of(counts)
    heads = [
        f"client {entry['clients'][own[0]]}" if len(own) == 1 else f"{len(own)} clients"
        for own, _ in columns
    ]
    return entry | {"columns": heads, "shares": [s.round(4).tolist() for _, s in columns]}
