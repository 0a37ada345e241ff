"""The configuration that the experiments with networks share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from fedcanon.runs.config import Config, make_config

SCAD: dict[str, Any] = {"name": "scad", "kappa": 1e-5}
"""The paper advises κ of at most 1e-5 for its ResNets."""


class Lengths(Protocol):
    """What the settings of an experiment say of its runs."""

    @property
    def rounds(self) -> int: ...
    @property
    def every(self) -> int: ...
    @property
    def clients(self) -> int: ...
    @property
    def local_steps(self) -> int: ...
    @property
    def batch_size(self) -> int: ...


def network_config(
    lengths: Lengths,
    data: str,
    partition: str,
    model: str,
    algorithm: Mapping[str, Any],
    penalty: Mapping[str, Any],
) -> Config:
    """A training of a network."""
    return make_config(
        None,
        {
            "rounds": lengths.rounds,
            "batch_size": lengths.batch_size,
            "data": {"name": data, "partition": partition},
            "clients": {"count": lengths.clients},
            "model": model,
            "penalty": dict(penalty),
            "algorithm": {**algorithm, "local_steps": lengths.local_steps},
            "evaluate": {"every": lengths.every, "gradient": False},
        },
    )
