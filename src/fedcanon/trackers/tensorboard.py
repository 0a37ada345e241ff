"""Sends runs to TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedcanon.trackers.base import Settings, Tracker


class TensorBoard(Tracker):
    """Writes event files to ``tensorboard/`` in the run's folder; settings are under HPARAMS."""

    name = "tensorboard"
    module = "torch.utils.tensorboard"
    _writer: Any

    def open(self, settings: Settings) -> int:
        folder = self.run.path / "tensorboard"
        known = max((record.round for record in self.run.records()), default=-1)
        if not any(folder.glob("events.*")):
            known = -1
        # Measures after the last checkpoint are taken again: the older ones are hidden.
        self._writer = self.library.SummaryWriter(folder, purge_step=known + 1)
        experiment, start, _ = self.library.summary.hparams(settings, {})
        self._writer.file_writer.add_summary(experiment)
        self._writer.file_writer.add_summary(start)
        return known

    def log(self, t: int, numbers: Mapping[str, float]) -> None:
        for name, number in numbers.items():
            self._writer.add_scalar(name, number, t)
        self._writer.flush()

    def close(self, completed: bool) -> None:
        self._writer.close()
