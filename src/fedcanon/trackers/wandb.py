"""Sends runs to Weights & Biases."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from fedcanon.trackers.base import Settings, Tracker


class WandB(Tracker):
    """Writes a run to ``wandb/`` in the run's folder; WANDB_MODE=online also sends it.

    ``wandb sync`` sends it later. The project is called "fedcanon" unless WANDB_PROJECT is set. A
    run that is resumed offline is written again from round 0 under the same id, so that the last
    version is complete.
    """

    name = module = "wandb"
    _run: Any

    def open(self, settings: Settings) -> int:
        mode = os.environ.get("WANDB_MODE", "offline")
        self._run = self.library.init(
            project=os.environ.get("WANDB_PROJECT", "fedcanon"),
            id=self.kept_id,
            resume="allow" if mode == "online" else None,
            name=self.run.name,
            dir=self.run.path,
            mode=mode,
            config=settings,
            allow_val_change=True,
            reinit="create_new",
            settings=self.library.Settings(console="off", silent=True),
        )
        self.kept_id = self._run.id
        return int(self._run.starting_step) - 1

    def log(self, t: int, numbers: Mapping[str, float]) -> None:
        self._run.log(dict(numbers), step=t)

    def close(self, completed: bool) -> None:
        self._run.finish(exit_code=0 if completed else 1)
