"""How many weights of each layer are zero in the final models."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from fedcanon.report.page.groups import Group
from fedcanon.report.page.reading import Layer


def layers(groups: Sequence[Group]) -> dict[str, Any]:
    """What the chart of layers shows: names, sizes, and for each group the mean shares of zeros."""
    models = [[run.layers for run in group.runs if run.layers] for group in groups]
    sizes = {name: layer.size for own in models for run in own for name, layer in run.items()}
    shares = [[_share([run[n] for run in own if n in run]) for n in sizes] for own in models]
    return {"names": list(sizes), "sizes": list(sizes.values()), "shares": shares}


def _share(layers: Sequence[Layer]) -> float | None:
    """The mean share of zeros in a layer over the runs that have it."""
    return statistics.fmean(own.zeros / own.size for own in layers) if layers else None
