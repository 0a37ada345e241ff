"""A sweep: trials over a space of settings, each a run for every seed."""

from __future__ import annotations

import csv
import io
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedcanon.errors import FedcanonError, RunStoppedError
from fedcanon.files import write_whole
from fedcanon.runs.build import build, check_names
from fedcanon.runs.config import Config, load_config, unknown_name
from fedcanon.runs.folder import RunFolder
from fedcanon.runs.measures import measure
from fedcanon.search.goal import Goal
from fedcanon.search.search_folder import Question, opened
from fedcanon.search.space import SEED, Sampler, Space
from fedcanon.search.trials import Outcome, Trial, Trials, TrialStatus
from fedcanon.search.workers import run_once, worker_processes


@dataclass(frozen=True)
class Sweep:
    """What is asked: ``trials`` combinations of a space, proposed by a sampler, judged by a goal.

    A trial is the run of the configuration ``file`` with ``settings`` and the trial's own, for
    every seed. ``trials`` is None for a grid, which has as many as there are combinations.
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
        """The configuration before a trial changes it."""
        return load_config(self.file, self.settings)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds for which every trial is run."""
        return self.space.seeds or (self.base.seed,)

    def config(self, params: dict[str, Any], seed: int) -> Config:
        """The configuration of one run."""
        own = [f"{key}={value}" for key, value in {**params, SEED: seed}.items()]
        return load_config(self.file, [*self.settings, *own])

    @property
    def question(self) -> Question:
        """What must be the same for a sweep to go on; the number of trials may grow."""
        return {
            "configuration": self.base.model_dump(),
            "over": {key: asdict(axis) for key, axis in self.space.axes.items()},
            "seeds": self.seeds,
            "sampler": self.sampler,
            "goal": asdict(self.goal),
        }

    def check(self) -> None:
        """Refuse a sweep with a mistake in a setting, or of which no run could begin."""
        configs = [self.config(params, self.seeds[0]) for params in self.space.samples()]
        for config in configs:
            check_names(config)
        errors = []
        for config in configs:
            try:
                federation = build(config)
            except FedcanonError as error:  # a trial of its own may fail, such as a step too large
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

Watch = Callable[[int, Sequence[Trial]], None]
"""Is told how many runs are done, and of all trials begun so far, whenever a run ends."""


def run_sweep(sweep: Sweep, folder: Path, workers: int, watch: Watch) -> list[Trial]:
    """Run what is missing of a sweep in its folder; all of its trials, by number.

    A run that was interrupted goes on from its checkpoint. A trial of which a run fails is kept as
    failed.
    """
    if not (folder / DATABASE).exists():
        sweep.check()
    with opened(folder, sweep.question):
        seed = sweep.base.seed
        trials = Trials(folder / DATABASE, sweep.space, sweep.goal, sweep.sampler, seed)
        try:
            _go_on(sweep, folder, trials, workers, watch)
        except BrokenProcessPool:
            raise FedcanonError(
                "a worker process was ended from outside, perhaps for want of memory: the same "
                "command goes on, with fewer --workers if need be."
            ) from None
        except (KeyboardInterrupt, RunStoppedError):
            raise FedcanonError(
                f"stopped: the same command goes on with what is missing in {folder}."
            ) from None
        found = trials.all()
        write_whole(folder / TABLE, _table(sweep, found))
        return found


def run_path(folder: Path, trial: Trial, seed: int) -> Path:
    """The folder of one run of a sweep."""
    return folder / f"trial-{trial.number:04}-seed-{seed}"


def _go_on(sweep: Sweep, folder: Path, trials: Trials, workers: int, watch: Watch) -> None:
    """Keep all workers busy until every trial has ended."""
    begun = trials.all()
    waiting = deque(
        (t, seed) for t in begun if t.state is TrialStatus.running for seed in sweep.seeds
    )
    done = (len(begun) - len(waiting) // len(sweep.seeds)) * len(sweep.seeds)
    _refuse_runs_of_others([run_path(folder, *run) for run in waiting])
    going: dict[Future[float], tuple[Trial, int]] = {}
    outcomes: dict[int, dict[int, Outcome]] = defaultdict(dict)
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


def _outcome(future: Future[float]) -> Outcome:
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


def _table(sweep: Sweep, trials: Sequence[Trial]) -> str:
    """The trials as CSV, a row each."""
    seeds = [f"seed {seed}" for seed in sweep.seeds]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    head = ["trial", "state", *sweep.space.axes, sweep.goal.measure, "deviation", *seeds, "error"]
    writer.writerow(head)
    for trial in trials:
        settings = [trial.params[key] for key in sweep.space.axes]
        judged = [trial.mean, trial.deviation] if trial.values else [None, None]
        values = trial.values or [None] * len(seeds)
        writer.writerow([trial.number, trial.state, *settings, *judged, *values, trial.error])
    return text.getvalue()
