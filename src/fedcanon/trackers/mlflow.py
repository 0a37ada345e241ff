"""Sends runs to MLflow."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from fedcanon.trackers.base import Settings, Tracker

PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
"""Shorter waits than MLflow's own, which would block a run for minutes if a server is down."""


class MLflow(Tracker):
    """Sends a run to the server in MLFLOW_TRACKING_URI, or to ``mlflow.db`` beside the runs.

    The experiment is called "fedcanon" unless MLFLOW_EXPERIMENT_NAME is set.
    """

    name = module = "mlflow"
    _client: Any
    _id: str

    def open(self, settings: Settings) -> int:
        for variable, value in PATIENCE.items():
            os.environ.setdefault(variable, value)
        beside_the_runs = f"sqlite:///{self.run.path.resolve().parent / 'mlflow.db'}"
        uri = os.environ.get("MLFLOW_TRACKING_URI") or beside_the_runs
        self._client = self.library.MlflowClient(uri)
        run_id = self.kept_id
        if run_id is not None and self._exists(run_id):
            self._id = run_id
            self._client.update_run(run_id, status="RUNNING")
            history = self._client.get_metric_history(run_id, "loss")
            return max((metric.step for metric in history), default=-1)
        run = self._client.create_run(self._experiment(), run_name=self.run.name)
        self._id = self.kept_id = run.info.run_id
        entities = self.library.entities
        params = [entities.Param(key, str(value)) for key, value in settings.items()]
        self._client.log_batch(self._id, params=params)
        return -1

    def log(self, t: int, numbers: Mapping[str, float]) -> None:
        now = int(1000 * time.time())
        metric = self.library.entities.Metric
        metrics = [metric(name, number, now, t) for name, number in numbers.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def close(self, completed: bool) -> None:
        self._client.set_terminated(self._id, "FINISHED" if completed else "KILLED")

    def _exists(self, run_id: str) -> bool:
        """Whether the server has a run with this id, which may come from another server."""
        try:
            self._client.get_run(run_id)
        except self.library.MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return False
        return True

    def _experiment(self) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "fedcanon")
        found = self._client.get_experiment_by_name(name)
        experiment_id: str = (
            self._client.create_experiment(name) if found is None else found.experiment_id
        )
        return experiment_id
