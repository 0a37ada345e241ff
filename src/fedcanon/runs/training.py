"""Training by a configuration: train, resume and load runs."""

from __future__ import annotations

import errno
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fedcanon.data import Dataset
from fedcanon.engines.client import explain_errors
from fedcanon.errors import FedcanonError, RunStoppedError, is_out_of_memory
from fedcanon.objectives.flat import FlatModule
from fedcanon.runs.build import build, resolved
from fedcanon.runs.config import DEPLOYED, Config, changed, engine_settings, make_config
from fedcanon.runs.federation import Federation
from fedcanon.runs.fitting import fit
from fedcanon.runs.folder import RunFolder
from fedcanon.runs.measures import Record
from fedcanon.runs.model_file import load_model, save_model
from fedcanon.runs.observers import Observer
from fedcanon.runs.privacy import public_summary
from fedcanon.runs.result import Result
from fedcanon.runs.steps import chooses_steps, open_steps

MODEL = "model.safetensors"


def train(
    config: Config | str | Path | Mapping[str, Any] | None = None,
    *,
    dataset: Dataset | None = None,
    folder: str | Path | None = None,
    observers: Sequence[Observer] = (),
    **settings: Any,
) -> Result:
    """Train a model.

    ``settings`` change it: ``rounds=50``, ``algorithm={"beta": 0.05}``, ``penalty="l1"``. With a
    ``dataset`` the configuration's own is not loaded. With a ``folder`` the run is kept there and
    can be resumed, compared and loaded; without one it lives in memory.

    Examples:
        >>> import fedcanon
        >>> result = fedcanon.train(rounds=2, model="linear", penalty="l1", clients={"count": 4})
        >>> result.last.round
        2
        >>> result.model
        Sequential(...)
    """
    config = make_config(config, settings)
    federation = build(config, dataset)
    if folder is None:
        return fit_as(config, federation, observers=observers)
    return train_in(Path(folder), config, federation, observers)


def train_in(
    path: Path, config: Config, federation: Federation, observers: Sequence[Observer] = ()
) -> Result:
    """Train a federation that was built from ``config`` and store the run in a new folder."""
    automatic = [f"algorithm.{key}" for key in sorted(open_steps(config.algorithm))]
    run = RunFolder.create(path, resolved(config, federation), automatic)
    with run.locked(), _explained(run, config):
        return _train_and_save(run, config, federation, (), observers)


def resume(
    name: str | Path,
    *,
    rounds: int | None = None,
    dataset: Dataset | None = None,
    observers: Sequence[Observer] = (),
    engine: str | None = None,
    workers: int | None = None,
    trust: bool = False,
) -> Result:
    """Resume a run from its last checkpoint; the result has the bits of an uninterrupted run.

    Args:
        name: The folder of the run, or its name in the runs folder.
        rounds: A new number of rounds, to continue a run beyond its end.
        dataset: The dataset, if the run was started with one.
        observers: Objects that follow the run.
        engine: Another engine, which does not change the result.
        workers: Another number of workers, which does not change the result.
        trust: Whether to import code that the run names (``package.module:Name``) even if it was
            made by somebody else, or on another machine.

    Raises:
        FedcanonError: The run does not exist, is finished or runs in another process, or it is not
            trusted.
    """
    run = RunFolder.find(name)
    run.require_trust(trust)

    def make(config: Config) -> Federation:
        if config.engine.name == DEPLOYED:
            raise FedcanonError(
                f"{name} is a run over real clients: go on with 'fedcanon deploy run'."
            )
        return build(changed(config, engine_settings(engine, workers)), dataset)

    settings = {} if rounds is None else {"rounds": rounds}
    return resume_with(run, make, settings=settings, observers=observers)


def resume_with(
    run: RunFolder,
    make: Callable[[Config], Federation],
    *,
    settings: Mapping[str, Any] | None = None,
    observers: Sequence[Observer] = (),
    may_restart: bool = True,
) -> Result:
    """Resume a run with the federation that ``make`` builds from its configuration.

    Args:
        run: The run.
        make: Builds the federation.
        settings: Changes of its configuration by dotted keys, such as a new number of rounds.
        observers: Objects that follow the run.
        may_restart: Whether the run may start from round 0 if all its checkpoints are damaged.

    Raises:
        FedcanonError: The run is finished, or no checkpoint can be used.
    """
    with run.locked(), _explained(run, run.config):
        config = run.config
        if settings:
            config = changed(config, settings)
            run.write_config(config)
        federation = make(config)
        found = run.checkpoints.load(federation.problem.start.device)
        if found is not None:
            with explain_errors(f"the newest checkpoint of {run.path} is not one of this run"):
                federation.load(found)
        elif not (may_restart or run.checkpoints.is_empty):
            raise FedcanonError(
                f"all checkpoints in {run.path / 'checkpoints'} are damaged: restore a copy of "
                "that folder, or begin a new run."
            )
        done = federation.rounds_done
        if run.result is not None and done >= config.rounds:
            raise FedcanonError(
                f"the run {run.name} is finished after {done} rounds: go on with --rounds."
            )
        records, loss = run.salvaged_records() if found else ([], "")
        records = [record for record in records if record.round <= done]
        run.reopen(records)
        run.log(f"resumed after round {done}")
        if loss:
            run.log(loss)
            for observer in observers:
                observer.event(loss)
        return _train_and_save(run, config, federation, records, observers)


def load(name: str | Path, *, trust: bool = False) -> Result:
    """Load the model and the measures of a finished run.

    Args:
        name: The folder of the run, or its name in the runs folder.
        trust: Whether to import code that the run names (``package.module:Name``) even if it was
            made by somebody else, or on another machine.

    Raises:
        FedcanonError: The run does not exist, is not finished or is not trusted.
    """
    run = RunFolder.find(name)
    run.require_trust(trust)
    result, data = run.result, run.data
    if result is None or data is None:
        raise FedcanonError(f"the run {run.name} is not finished: use 'fedcanon resume'.")
    config, path = run.config, run.path / MODEL
    make_model = partial(load_model, config, data.shape, data.classes, path)
    flat, records = FlatModule(make_model()), run.records()
    return Result(
        flat.vector, flat.buffers, records, result.stopped, make_model, run.name, run.path
    )


def fit_as(
    config: Config,
    federation: Federation,
    records: Sequence[Record] = (),
    observers: Sequence[Observer] = (),
    *,
    may_slow_down: bool | None = None,
) -> Result:
    """Train a federation with the rounds, measures and tolerances of a configuration.

    By default a run that diverges goes on with smaller steps if some of its steps are automatic.
    """
    if may_slow_down is None:
        may_slow_down = chooses_steps(config.algorithm, open_steps(config.algorithm))
    return fit(
        federation,
        config.rounds,
        evaluate_every=config.evaluate.every,
        clients=config.evaluate.clients,
        gradient=config.evaluate.gradient,
        gradient_step=config.evaluate.step,
        gradient_tolerance=config.stop.gradient,
        objective_tolerance=config.stop.objective,
        may_slow_down=may_slow_down,
        records=records,
        observers=observers,
    )


def _train_and_save(
    run: RunFolder,
    config: Config,
    federation: Federation,
    records: Sequence[Record],
    observers: Sequence[Observer],
) -> Result:
    """Train, write history, log and checkpoints during the run, and save the model at its end."""
    federation.use_folder(run.path, begun=run.data is not None)
    if federation.problem.data is not None:
        run.write_data(public_summary(federation.problem.data, federation.privacy))
    environment = run.environment
    settings = [] if environment is None else environment.automatic
    automatic = [setting.removeprefix("algorithm.") for setting in settings]
    may_slow_down = chooses_steps(config.algorithm, automatic)
    try:
        with _stop_on_signals() as asked_to_stop:
            recorder = _Recorder(run, config, asked_to_stop)
            observers = [recorder, *observers]
            result = fit_as(config, federation, records, observers, may_slow_down=may_slow_down)
    except FedcanonError as error:
        with suppress(OSError):  # this may be the reason
            run.log(str(error))
        raise
    save_model(result.model, run.path / MODEL)
    run.finish(result.stopped, result.records)
    if asked_to_stop.is_set():  # in the last round: the caller must not begin another run
        raise RunStoppedError(f"stopped after the last round: {run.name} is finished.")
    return replace(result, title=run.name, folder=run.path)


def resume_command(run: RunFolder, config: Config) -> str:
    """Return the command that resumes a run."""
    return (
        "fedcanon deploy run" if config.engine.name == DEPLOYED else f"fedcanon resume {run.path}"
    )


@contextmanager
def _explained(run: RunFolder, config: Config) -> Iterator[None]:
    """Turn errors about the disk or too little memory into sentences that say how to go on."""
    try:
        yield
    except (OSError, MemoryError, RuntimeError) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            reason = f"the disk of {run.path} is full: free some space."
        elif isinstance(error, OSError) and error.errno is not None:
            reason = f"the run {run.path} cannot go on: {error.strerror}."
        elif is_out_of_memory(error):
            reason = "there is not enough memory for this run."
        else:
            raise
        go_on = f"The last checkpoint is kept: go on with '{resume_command(run, config)}'."
        raise FedcanonError(f"{reason} {go_on}") from error


class _Recorder(Observer):
    """Writes the history, the checkpoints and the log of a run."""

    def __init__(self, run: RunFolder, config: Config, asked_to_stop: threading.Event) -> None:
        self._run, self._every = run, config.checkpoint
        self._resume_command = resume_command(run, config)
        self._checkpoints, self._asked_to_stop = run.checkpoints, asked_to_stop

    def begin(self, federation: Federation, rounds: int) -> None:
        self._federation, self._rounds, self._saved = federation, rounds, time.monotonic()
        self._run.log(f"{federation.algorithm}, up to round {rounds}")

    def record(self, record: Record) -> None:
        self._run.append(record)

    def event(self, message: str) -> None:
        self._run.log(message)

    def round(self, t: int) -> None:
        stop = self._asked_to_stop.is_set()
        rounds = 1 if self._federation.engine.durable_rounds else self._every.rounds
        due = rounds is not None and t % rounds == 0
        if stop or due or time.monotonic() - self._saved >= self._every.seconds:
            self._save(t)
        if stop and t < self._rounds:
            raise RunStoppedError(f"stopped after round {t}: go on with '{self._resume_command}'.")

    def end(self, stopped: str) -> None:
        self._save(self._federation.rounds_done)
        self._run.log(f"ended after round {self._federation.rounds_done}: {stopped}")

    def _save(self, t: int) -> None:
        self._run.sync_history()
        self._checkpoints.save(t, self._federation.state())
        self._saved = time.monotonic()


@contextmanager
def _stop_on_signals() -> Iterator[threading.Event]:
    """Provide an event that Ctrl-C and SIGTERM set; a second signal raises KeyboardInterrupt."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked  # only the main thread can handle signals
        return

    def ask(number: int, frame: object) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
