"""Runs in TensorBoard, MLflow and Weights & Biases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedcanon.errors import FedcanonError
from fedcanon.runs.config import unknown_name
from fedcanon.trackers.base import Tracker
from fedcanon.trackers.mlflow import MLflow
from fedcanon.trackers.tensorboard import TensorBoard
from fedcanon.trackers.wandb import WandB

TRACKERS: dict[str, type[Tracker]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WandB,
}
"""Every tracker by its name on the command line."""


def check_trackers(names: Iterable[str]) -> None:
    """Refuse names that do not exist and trackers whose package is not installed."""
    for name in names:
        if name not in TRACKERS:
            raise FedcanonError(unknown_name("tracker", name, TRACKERS))
        TRACKERS[name].load_library()


@contextmanager
def tracking(names: Iterable[str], folder: str | Path) -> Iterator[list[Tracker]]:
    """Trackers for the run that is kept in ``folder``, to be given to it as observers.

    with tracking(["mlflow"], "runs/first") as trackers:
        train(folder="runs/first", observers=trackers)
    """
    names = list(dict.fromkeys(names))
    check_trackers(names)
    trackers = [TRACKERS[name](Path(folder)) for name in names]
    try:
        yield trackers
    finally:
        for tracker in trackers:
            tracker.finish()


__all__ = [
    "TRACKERS",
    "MLflow",
    "TensorBoard",
    "Tracker",
    "WandB",
    "check_trackers",
    "tracking",
]
