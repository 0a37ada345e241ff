"""Sends runs to TensorBoard, MLflow and Weights & Biases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedcanon.errors import FedcanonError, unknown_name
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
    """Raise a FedcanonError if a tracker does not exist or its package is not installed."""
    for name in names:
        if name not in TRACKERS:
            raise FedcanonError(unknown_name("tracker", name, TRACKERS))
        TRACKERS[name].load_library()


@contextmanager
def tracking(names: Iterable[str], folder: str | Path) -> Iterator[list[Tracker]]:
    """Open trackers for a run, and close them at its end.

        with tracking(["mlflow"], "runs/first") as trackers:
            train(folder="runs/first", observers=trackers)

    Args:
        names: Names of trackers, such as "mlflow".
        folder: The folder of the run.

    Raises:
        FedcanonError: A tracker does not exist, or its package is not installed.
    """
    names = list(dict.fromkeys(names))
    check_trackers(names)
    trackers = [TRACKERS[name](Path(folder)) for name in names]
    try:
        yield trackers
    finally:
        for tracker in trackers:
            tracker.finish()


__all__ = ["TRACKERS", "MLflow", "TensorBoard", "Tracker", "WandB", "check_trackers", "tracking"]
