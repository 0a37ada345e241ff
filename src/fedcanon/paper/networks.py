"""The configuration that the trainings of the figures and of Table VI share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fedcanon.paper.methods import as_published
from fedcanon.runs.config import Config, Table, make_config

SCAD: Table = {"name": "scad", "kappa": 1e-5}
"""The paper advises κ of at most 1e-5 for its ResNets."""


@dataclass(frozen=True)
class Lengths:
    """How long a training is, and over how many clients the data are spread."""

    rounds: int = 200
    every: int | None = None
    """Rounds between two measurements; None measures only the first and the final model."""
    clients: int = 10
    local_steps: int = 20
    batch_size: int = 32

    def config(
        self,
        data: str,
        partition: str,
        model: str,
        penalty: Table,
        algorithm: Table,
        *,
        gradient: bool = False,
        clients: bool = True,
    ) -> Config:
        """The configuration of such a training.

        With ``gradient`` ‖G‖ is measured too; without ``clients`` only test accuracy and loss are.
        """
        return make_config(
            None,
            {
                "rounds": self.rounds,
                "batch_size": self.batch_size,
                "data": {"name": data, "partition": partition},
                "clients": {"count": self.clients},
                "model": model,
                "penalty": penalty,
                "algorithm": {**algorithm, "local_steps": self.local_steps},
                "evaluate": {
                    "every": self.every or self.rounds,
                    "clients": clients,
                    "gradient": gradient,
                },
            },
        )


@dataclass(frozen=True)
class FashionLengths(Lengths):
    """Trainings on Fashion-MNIST, with β from ``betas`` by validation: Figures 2 and 3."""

    betas: tuple[float, ...] = (0.01, 0.02, 0.05, 0.1)
    tuning_rounds: int = 200
    samples: tuple[int | None, int | None] = (None, None)
    """How many of the training and of the test samples are used; None is all."""
    last: int = 3
    """Measurements at the end over which the accuracy is averaged."""
    seeds: tuple[int, ...] = (0, 1, 2)

    def configs(
        self, methods: Iterable[str], partition: str, model: str, penalty: Table
    ) -> dict[str, Config]:
        """The configuration of each method, whose β is still to be chosen."""
        common = ("fashion_mnist", partition, model, penalty)
        return {method: self.config(*common, as_published(method)) for method in methods}
