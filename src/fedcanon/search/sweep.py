"""A sweep: it tries combinations of settings, and runs each of them with every seed."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fedcanon.errors import FedcanonError, RunStoppedError, unknown_name
from fedcanon.objectives.problem import MEASURES
from fedcanon.runs.build import build, check_names
from fedcanon.runs.config import Config, load_config
from fedcanon.runs.folder import RunFolder
from fedcanon.runs.measures import measure
from fedcanon.search.goal import Goal
from fedcanon.search.sampler import Sampler
from fedcanon.search.search_folder import SearchIdentity, open_search, write_table
from fedcanon.search.space import SEED, Space
from fedcanon.search.trials import RunOutcome, Trial, Trials, TrialStatus
from fedcanon.search.workers import run_once, worker_processes


@dataclass(frozen=True)
class Sweep:
    """A sweep to run.

    A trial is one combination of settings: it is run once with every seed.

    Args:
        file: The configuration; None for the default run.
        settings: Changes to it that are the same in all trials, as ``key=value``.
        space: The settings that are varied.
        goal: What makes a trial better than another.
        sampler: How combinations are chosen.
        trials: How many combinations are tried; None for a grid, which tries all.

    Raises:
        FedcanonError: A grid has a range or a number of trials.
    """

    file: Path | None
    settings: tuple[str, ...]
    space: Space
    goal: Goal
    sampler: Sampler
    trials: int | None = None

    def __post_init__(self) -> None:
        if self.sampler is Sampler.grid and self.space.ranges:
            raise FedcanonError(
                f"a grid needs lists of values, but {self.space.ranges[0]} is a range: "
                "list its values, or use --sampler random or tpe."
            )
        if self.sampler is Sampler.grid and self.trials is not None:
            raise FedcanonError(
                "a grid runs every combination: leave --trials out, or use --sampler random."
            )

    @property
    def size(self) -> int:
        """The number of trials."""
        return len(self.space.grid()) if self.trials is None else self.trials

    @property
    def base(self) -> Config:
        """The configuration without the settings of a trial."""
        return load_config(self.file, self.settings)

    @property
    def judged(self) -> str:
        """The name of the goal's measure: of validation, where samples are held out for it."""
        measure = self.goal.measure
        if measure not in MEASURES or not self.base.data.validation:
            return measure
        return f"validation_{measure.removeprefix('test_')}"

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds with which every trial is run."""
        return self.space.seeds or (self.base.seed,)

    def config(self, params: dict[str, Any], seed: int) -> Config:
        """The configuration of the run of a trial with one seed."""
        own = [f"{key}={value}" for key, value in {**params, SEED: seed}.items()]
        return load_config(self.file, [*self.settings, *own])

    @property
    def identity(self) -> SearchIdentity:
        """Everything that decides what the trials find; their number may grow later."""
        return {
            "configuration": self.base.model_dump(),
            "over": {key: asdict(axis) for key, axis in self.space.axes.items()},
            "seeds": self.seeds,
            "sampler": self.sampler,
            "goal": asdict(self.goal),
        }

    def check(self) -> None:
        """Raise a FedcanonError if a setting is wrong, or if no run could start."""
        configs = [self.config(params, self.seeds[0]) for params in self.space.covering()]
        for config in configs:
            check_names(config)
        errors = []
        for config in configs:
            try:
                federation = build(config)
            except FedcanonError as error:  # one trial may fail, for instance by too large a step
                errors.append(error)
                continue
            engine, cost = federation.engine, federation.cost
            measures = measure(engine, federation.server, t=0, cost=cost, step=None).flat()
            if self.goal.measure not in measures:
                raise FedcanonError(unknown_name("measure", self.goal.measure, measures))
            return
        raise errors[0]


DATABASE = "trials.db"
TABLE = "trials.csv"

WatchSweep = Callable[[int, Sequence[Trial]], None]
"""Called whenever a run ends, with the number of runs done and all trials so far."""


def run_sweep(sweep: Sweep, folder: Path, workers: int, watch: WatchSweep) -> list[Trial]:
    """Run the trials of a sweep that its folder does not have yet.

    A run that was interrupted goes on from its checkpoint. A trial fails if one of its runs does.

    Args:
        sweep: The sweep.
        folder: Where its runs and its table are kept.
        workers: How many runs go on at the same time, each in a process of its own.
        watch: Is told of the progress.

    Returns:
        All trials, by their number.

    Raises:
        FedcanonError: A setting is wrong, the sweep was stopped, or the folder holds another one.
    """
    if not (folder / DATABASE).exists():
        sweep.check()
    with open_search(folder, sweep.identity):
        seed = sweep.base.seed
        trials = Trials(folder / DATABASE, sweep.space, sweep.goal, sweep.sampler, seed)
        try:
            _run_all(sweep, folder, trials, workers, watch)
        except BrokenProcessPool:
            raise FedcanonError(
                "a worker process was ended from outside, perhaps for want of memory: the same "
                "command goes on, with fewer --workers if need be."
            ) from None
        except (KeyboardInterrupt, RunStoppedError):
            raise RunStoppedError(
                f"stopped: the same command goes on with what is missing in {folder}."
            ) from None
        found = trials.all()
        write_table(folder / TABLE, _rows(sweep, found))
        return found


def run_path(folder: Path, trial: Trial, seed: int) -> Path:
    """The folder of the run of a trial with one seed."""
    return folder / f"trial-{trial.number:04}-seed-{seed}"


def _run_all(sweep: Sweep, folder: Path, trials: Trials, workers: int, watch: WatchSweep) -> None:
    """Keep all workers busy until every trial has ended."""
    begun = trials.all()
    open_trials = [trial for trial in begun if trial.state is TrialStatus.running]
    waiting = deque((trial, seed) for trial in open_trials for seed in sweep.seeds)
    done = (len(begun) - len(open_trials)) * len(sweep.seeds)
    _refuse_runs_of_others([run_path(folder, *run) for run in waiting])
    going: dict[Future[float], tuple[Trial, int]] = {}
    outcomes: dict[int, dict[int, RunOutcome]] = defaultdict(dict)
    with worker_processes(workers) as pool:
        while True:
            watch(done, begun)
            while len(going) < workers and (waiting or len(begun) < sweep.size):
                if not waiting:
                    begun.append(trials.begin())
                    waiting.extend((begun[-1], seed) for seed in sweep.seeds)
                trial, seed = waiting.popleft()
                config = sweep.config(trial.params, seed)
                future = pool.submit(run_once, run_path(folder, trial, seed), config, sweep.goal)
                going[future] = trial, seed
            if not going:
                return
            for future in wait(going, return_when=FIRST_COMPLETED).done:
                trial, seed = going.pop(future)
                outcomes[trial.number][seed] = _outcome(future)
                done += 1
                if len(outcomes[trial.number]) == len(sweep.seeds):
                    trials.end(trial, [outcomes[trial.number][seed] for seed in sweep.seeds])
            begun = trials.all()


def _outcome(future: Future[float]) -> RunOutcome:
    try:
        return future.result()
    except RunStoppedError:
        raise
    except FedcanonError as error:  # a run that diverges must not cost the others
        return error


def _refuse_runs_of_others(paths: Sequence[Path]) -> None:
    for path in paths:
        if path.is_dir():
            with RunFolder(path).locked():
                pass


def _rows(sweep: Sweep, trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """The table of a sweep: a row for each trial."""
    return [
        {
            "trial": trial.number,
            "state": str(trial.state),
            **{key: trial.params[key] for key in sweep.space.axes},
            sweep.judged: trial.mean if trial.values else None,
            "deviation": trial.deviation if trial.values else None,
            **dict(zip_longest((f"seed {seed}" for seed in sweep.seeds), trial.values)),
            "error": trial.error,
        }
        for trial in trials
    ]
