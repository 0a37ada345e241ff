"""The folder of a run, with its settings, measures, checkpoints and model."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import Any

import tomli_w
from filelock import FileLock, Timeout

from fedcanon.checkpoint import Checkpoints, make_durable, write_text
from fedcanon.errors import FedcanonError
from fedcanon.objectives import DataSummary
from fedcanon.runs.config import Config, load_config
from fedcanon.runs.environment import environment
from fedcanon.runs.measures import Record, frame


def runs_folder() -> Path:
    """Return the folder of all runs: FEDCANON_RUNS, or ``runs`` in the current folder."""
    return Path(os.environ.get("FEDCANON_RUNS", "runs"))


class RunFolder:
    """The folder of one run.

    config.toml          all settings, with numbers in place of "auto"
    environment.json     versions, commit, hardware, command
    data.json            the dataset's name and shape, and the label counts of every client
    history.jsonl        the measures, one line each, written during the run
    history.parquet      the same as a table, written at the end
    checkpoints/         the last states from which the run can be resumed
    model.safetensors    the model by parameter names, written at the end
    result.json          why the run ended, and the last measures
    log.txt              events with their time
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, config: Config, automatic: Sequence[str] = ()) -> RunFolder:
        """Make a new folder for a run of this configuration.

        Args:
            path: The folder.
            config: The configuration, with numbers in place of "auto".
            automatic: The names of settings that were "auto".

        Raises:
            FedcanonError: The folder exists or cannot be made.
        """
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            raise FedcanonError(
                f"the folder {path} exists already: choose another name, or go on with "
                f"'fedcanon resume {path}'."
            ) from None
        except OSError as error:
            raise FedcanonError(f"cannot make the folder {path}: {error.strerror}.") from None
        run = cls(path)
        facts = {**environment(), "automatic": list(automatic)}
        run._write("environment.json", json.dumps(facts, indent=2))
        run.write_config(config)  # last: a folder is recognised as a run by this file
        return run

    def write_config(self, config: Config) -> None:
        """Write the settings to config.toml."""
        self._write("config.toml", tomli_w.dumps(config.model_dump(exclude_none=True)))

    @classmethod
    def find(cls, name: str | Path) -> RunFolder:
        """Find a run by its path, or by its name in the runs folder.

        The beginning of the name is enough if no other run begins like this.

        Raises:
            FedcanonError: There is no such run, or more than one.
        """
        path = Path(name)
        if (path / "config.toml").is_file():
            return cls(path)
        known = [run for run in list_runs() if run.name.startswith(str(name))]
        exact = [run for run in known if run.name == str(name)]
        if len(exact or known) == 1:
            return (exact or known)[0]
        if known:
            names = ", ".join(run.name for run in known)
            raise FedcanonError(f"'{name}' could be {names}: give more of the name.")
        raise FedcanonError(
            f"there is no run '{name}', neither as a folder nor in {runs_folder()}: "
            "'fedcanon runs' lists what is there."
        )

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.path.name

    @property
    def config(self) -> Config:
        """The settings of the run."""
        return load_config(self.path / "config.toml")

    @property
    def environment(self) -> dict[str, Any]:
        """Versions, commit, hardware and command of the run."""
        return self._read("environment.json") or {}

    @property
    def result(self) -> dict[str, Any] | None:
        """Why the run ended, and its last measures; None if it has not ended."""
        return self._read("result.json")

    @property
    def data(self) -> DataSummary | None:
        """A summary of the dataset; None if it has not been written yet."""
        found = self._read("data.json")
        return None if found is None else DataSummary(**{**found, "shape": tuple(found["shape"])})

    def write_data(self, data: DataSummary) -> None:
        """Write the summary of the dataset to data.json."""
        self._write("data.json", json.dumps(asdict(data)))

    @property
    def status(self) -> str:
        """The status of the run: "finished", "running" or "interrupted"."""
        if self.result is not None:
            return "finished"
        try:
            with self._lock().acquire(blocking=False):
                return "interrupted"
        except Timeout:
            return "running"
        except OSError:  # in a read-only folder, no process can be running
            return "interrupted"

    @property
    def checkpoints(self) -> Checkpoints:
        """The states from which the run can be resumed."""
        return Checkpoints(self.path / "checkpoints", self.config.checkpoint.keep)

    def records(self) -> list[Record]:
        """Read the measures so far; a last line that a crash has cut off is ignored."""
        path = self.path / "history.jsonl"
        if not path.is_file():
            return []
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
        return [Record.from_dict(json.loads(line)) for line in lines]

    def reopen(self, records: Sequence[Record]) -> None:
        """Prepare to resume the run after these measures; later ones are deleted."""
        self._write("history.jsonl", "".join(f"{_line(record)}\n" for record in records))
        (self.path / "result.json").unlink(missing_ok=True)

    def sync_history(self) -> None:
        """Wait until the measures so far are written to disk."""
        make_durable(self.path / "history.jsonl")

    def append(self, record: Record) -> None:
        """Add one record to the history."""
        with (self.path / "history.jsonl").open("a", encoding="utf-8") as file:
            file.write(f"{_line(record)}\n")

    def log(self, message: str) -> None:
        """Add a line to the log."""
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        with (self.path / "log.txt").open("a", encoding="utf-8") as file:
            file.write(f"{now}  {message}\n")

    def finish(self, stopped: str, records: Sequence[Record]) -> None:
        """Write the table of measures, and the result with the reason why the run ended."""
        temporary = self.path / "history.parquet.tmp"
        frame(records).to_parquet(temporary)
        make_durable(temporary)
        temporary.rename(self.path / "history.parquet")
        last = records[-1].flat()
        self._write("result.json", json.dumps({"stopped": stopped, **last}, indent=2))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Prevent other processes from working on this run at the same time.

        Raises:
            FedcanonError: Another process works on it already.
        """
        try:
            with self._lock().acquire(blocking=False):
                yield
        except Timeout:
            raise FedcanonError(
                f"the run {self.name} is going on in another process: wait for its end, or stop it."
            ) from None

    def _lock(self) -> FileLock:
        if not self.path.is_dir():  # FileLock would make the folder
            raise FedcanonError(f"there is no folder {self.path}: restore it, or begin a new run.")
        return FileLock(self.path / ".lock")

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return found

    def _write(self, name: str, text: str) -> None:
        write_text(self.path / name, text)


def list_runs() -> list[RunFolder]:
    """Return all runs in the runs folder, sorted by name, which begins with the date."""
    folder = runs_folder()
    found = [path.parent for path in folder.glob("*/config.toml")] if folder.is_dir() else []
    return [RunFolder(path) for path in sorted(found)]


def new_path(config: Config) -> Path:
    """Return an unused path for a new run, named after the time and its main settings."""
    now = datetime.now().strftime("%Y%m%d-%H%M%S")
    penalty = config.penalty.get("name", "layers")
    words = (config.data.name, config.model.name, config.algorithm["name"], penalty)
    name = "-".join([now, *(re.sub(r"[^\w.+]+", "_", str(word)) for word in words)])
    suffixes = chain([""], (f"-{k}" for k in count(2)))
    paths = (runs_folder() / f"{name}{suffix}" for suffix in suffixes)
    return next(path for path in paths if not path.exists())


def _line(record: Record) -> str:
    return json.dumps(asdict(record))
