"""The folder of a run, with its settings, measures, checkpoints and model."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from datetime import datetime
from functools import partial
from itertools import chain, count
from math import prod
from pathlib import Path
from typing import Annotated

import tomli_w
from filelock import Timeout
from pydantic import AfterValidator, BaseModel, ConfigDict, TypeAdapter

from fedcanon.checkpoint import Checkpoints
from fedcanon.errors import FedcanonError
from fedcanon.files import (
    Count,
    explained,
    is_unfinished,
    lock_of,
    locked,
    make_durable,
    private_folder,
    read_json,
    read_json_lines,
    salvaged_json_lines,
    write_whole,
)
from fedcanon.objectives import DataSummary
from fedcanon.runs.config import DEPLOYED, Config, load_config
from fedcanon.runs.environment import Environment
from fedcanon.runs.measures import Record, frame
from fedcanon.runs.trust import code_named, is_sealed, seal
from fedcanon.text import printable


def runs_folder() -> Path:
    """Return the folder of all runs: FEDCANON_RUNS, or ``runs`` in the current folder."""
    return Path(os.environ.get("FEDCANON_RUNS", "runs"))


class Ending(BaseModel):
    """Why a run ended, after which round, and its last measures by their names."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, float | None]

    stopped: str
    round: Count

    @property
    def measures(self) -> dict[str, float | None]:
        """The last measures by their names."""
        return {"round": self.round, **self.__pydantic_extra__}


_LARGEST = 2**40
"""Numbers in an input times classes that a run may have: its linear model would fill 4 TiB."""


def _consistent(data: DataSummary) -> DataSummary:
    rows_fit = all(len(row) == data.classes for row in data.label_counts)
    if not (rows_fit and data.classes and all(data.shape)):
        raise ValueError("shape, classes and label_counts do not fit together")
    lengths = {
        prod(data.shape): (data.features, data.means, data.deviations),
        data.classes: (data.class_names,),
    }
    for length, lists in lengths.items():
        if any(own and len(own) != length for own in lists):
            raise ValueError("names, means or deviations do not fit the shape or the classes")
    if data.client_names and len(data.client_names) != len(data.label_counts):
        raise ValueError("client_names and label_counts do not fit together")
    if prod(data.shape) * data.classes > _LARGEST:
        raise ValueError("shape and classes are too large")
    return data


_ENVIRONMENT = TypeAdapter(Environment)
_DATA = TypeAdapter(Annotated[DataSummary, AfterValidator(_consistent)])
_ENDING = TypeAdapter(Ending)
_RECORD = TypeAdapter(Record)


_FIRST_FILES = frozenset(
    {
        "environment.json",
        "seal",
        "config.toml",
        "log.txt",
        "deployment.json",
        "attempts.json",
        "privacy.json",
        "opened.safetensors",
        ".lock",
    }
)
"""What the folder of a run has before there is anything to resume."""


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
    seal                 shows that this user made config.toml, if it names code to import
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
        if path.exists():
            raise FedcanonError(
                f"the folder {path} exists already: choose another name, or go on with "
                f"'fedcanon resume {path}'."
            )
        run = cls(path)
        facts = asdict(Environment.here(list(automatic)))
        with explained(f"cannot make the folder {path}"):
            if config.engine.name == DEPLOYED:  # what clients send is for the operator alone
                private_folder(path)
            else:
                path.mkdir(parents=True)
            run._write("environment.json", json.dumps(facts, indent=2))
            run.write_config(config)  # last: a folder is recognised as a run by this file
        return run

    def write_config(self, config: Config) -> None:
        """Write the settings to config.toml, and a seal if they name code to import."""
        text = tomli_w.dumps(config.model_dump(exclude_none=True))
        if code_named(config):
            self._write("seal", seal(text))
        self._write("config.toml", text)

    def discard(self) -> None:
        """Remove the folder of a run that was killed before it could be resumed, if it exists.

        Raises:
            FedcanonError: There is something in it that no such run has written; all of it stays.
        """
        if not self.path.exists():
            return
        with explained(f"cannot remove {self.path}"):
            for path in sorted(self.path.iterdir()):
                known = path.name in _FIRST_FILES or is_unfinished(path)
                if not known or path.is_symlink() or not path.is_file():
                    self._refuse_to_discard(path)
            config = self.path / "config.toml"
            if config.exists() and self.environment is None:  # which every run writes before
                self._refuse_to_discard(config)
            with self.locked():
                for path in self.path.iterdir():
                    path.unlink()
            self.path.rmdir()

    def _refuse_to_discard(self, path: Path) -> None:
        raise FedcanonError(
            f"the folder {self.path} is not that of a run which has just begun, for it holds "
            f"{path.name}: choose another folder, or move it away."
        )

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
        path = self.path / "config.toml"
        try:
            return load_config(path)
        except FedcanonError as error:
            raise FedcanonError(f"{path} is not the configuration of a run: {error}") from None

    def require_trust(self, trust: bool) -> None:
        """Raise a ``FedcanonError`` if the run names code to import that might be a stranger's.

        Args:
            trust: Whether the user trusts the run; a run that this user has made needs no trust.
        """
        code = code_named(self.config)
        if code and not trust and not self._is_sealed():
            raise FedcanonError(
                f"the run {self.name} would import {', '.join(code)}, and you have not made it "
                "here: if you trust whoever did, allow it with --trust (in Python trust=True)."
            )

    def _is_sealed(self) -> bool:
        with explained(f"cannot read the run {self.name}"):
            path = self.path / "seal"
            text = (self.path / "config.toml").read_text(encoding="utf-8")
            return path.is_file() and is_sealed(text, path.read_bytes())

    @property
    def environment(self) -> Environment | None:
        """Versions, commit, hardware, command."""
        return read_json(self.path / "environment.json", _ENVIRONMENT)

    @property
    def result(self) -> Ending | None:
        """Why the run ended, with its last measures; None while it has not."""
        return read_json(self.path / "result.json", _ENDING)

    @property
    def data(self) -> DataSummary | None:
        """A summary of the data behind the run."""
        return read_json(self.path / "data.json", _DATA)

    def write_data(self, data: DataSummary) -> None:
        """Write the summary of the dataset to data.json."""
        # asdict would copy the counts of a million clients one by one.
        self._write("data.json", json.dumps(vars(data)))

    @property
    def status(self) -> str:
        """The status of the run: "finished", "running" or "interrupted"."""
        if self.result is not None:
            return "finished"
        try:
            with lock_of(self.path).acquire(blocking=False):
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
        """The measures so far; a last line that was cut off by a crash is left out."""
        return read_json_lines(self.path / "history.jsonl", _RECORD)

    def salvaged_records(self) -> tuple[list[Record], str]:
        """The measures that can be read, and a sentence if others cannot, which is else empty.

        Before anything is left out, the history is copied to history-damaged.jsonl.
        """
        history, copy = self.path / "history.jsonl", self.path / "history-damaged.jsonl"
        readable, damaged = salvaged_json_lines(history, _RECORD)
        records = list[Record]()
        for record in readable:
            if not records or record.round > records[-1].round:
                records.append(record)
        if left_out := damaged + len(readable) - len(records):
            with explained(f"cannot copy {history}"):
                write_whole(copy, partial(shutil.copyfile, history))
            return records, (
                f"{left_out} damaged line{'s' if left_out > 1 else ''} of {history} left out; the "
                f"damaged history is kept in {copy.name}."
            )
        return records, ""

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
            file.write(f"{now}  {printable(message)}\n")

    def finish(self, stopped: str, records: Sequence[Record]) -> None:
        """Write the table of measures and why the run ended."""
        write_whole(self.path / "history.parquet", frame(records).to_parquet)
        last = records[-1].flat()
        self._write("result.json", json.dumps({"stopped": stopped, **last}, indent=2))

    def locked(self) -> AbstractContextManager[None]:
        """Prevent other processes from working on this run at the same time.

        Raises:
            FedcanonError: Another process works on it already.
        """
        going_on = f"the run {self.name} is going on in another process"
        return locked(self.path, f"{going_on}: wait for its end, or stop it.")

    def _write(self, name: str, text: str) -> None:
        write_whole(self.path / name, text)


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
