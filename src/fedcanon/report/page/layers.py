"""Zeros in every layer of the final models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedcanon.report.page.groups import Group


def layers(groups: Sequence[Group]) -> dict[str, Any]:
    """Layers of all models, and the mean share of zeros that each group has in them."""
    with_model = [[run.layers for run in group.runs if run.layers] for group in groups]
    sizes = {name: layer.size for own in with_model for run in own for name, layer in run.items()}
    shares = [
        [
            float(np.mean([run[name].zeros / run[name].size for run in own]))
            if own and name in own[0]
            else None
            for name in sizes
        ]
        for own in with_model
    ]
    return {"names": list(sizes), "sizes": list(sizes.values()), "shares": shares}
