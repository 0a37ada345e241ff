"""Accuracy after equal rounds on Fashion-MNIST, for methods tuned with equally many trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import mean
from typing import Any

import numpy as np
import torch
from rich.progress import Progress

from comparison.journal import Journal, Outcome
from fedcanon import DivergenceError, Observer, Problem, fit
from fedcanon.algorithms import Facts
from fedcanon.data import DATASETS, Dataset
from fedcanon.data.dataset import Split
from fedcanon.runs.build import assemble, build_problem
from fedcanon.runs.config import Config, make_config
from fedcanon.runs.steps import facts_of, fill_in

K = 20
MODELS = {
    "MLP": "mlp",
    "deep MLP": "comparison.models:deep",
    "CNN": "comparison.models:small_cnn",
}
PARTITIONS = ("dirichlet:1", "dirichlet:0.1", "dirichlet:0.01")
LAST = 3
"""The measurements at the end whose mean is a run's accuracy."""

Table = dict[str, Any]
FOLLOWING: Table = {"alpha": "beta*K"}
METHODS: dict[str, Table] = {
    "FedAvg": {"name": "fedavg"},
    "FedProx": {"name": "fedprox", "mu": 0.1},
    "FedAvg-M": {"name": "fedavg-m", **FOLLOWING},
    "FedAvg, server momentum": {"name": "fedavg", "momentum": 0.9, "server_step": 0.3},
    "FedAdam": {"name": "fedadam", "server_step": 0.01},
    "FedExP": {"name": "fedexp"},
    "SCAFFOLD": {"name": "scaffold", "gain": "off"},
    "SCAFFOLD, damped": {"name": "scaffold"},
    "FedCanon": {"name": "fedcanon", **FOLLOWING},
    "FedCanon+, undamped": {"name": "fedcanon+", **FOLLOWING, "gain": "off", "accelerated": False},
    "FedCanon+, not accelerated": {"name": "fedcanon+", **FOLLOWING, "accelerated": False},
    "FedCanon+": {"name": "fedcanon+", **FOLLOWING},
}
"""What is compared: β is tuned; gain and acceleration are automatic where they are not given."""
AUTO = "FedCanon+, auto"
TRIALS = (
    (0.5, "constant"),
    (1.0, "constant"),
    (2.0, "constant"),
    (4.0, "constant"),
    (2.0, "cosine"),
)
"""The trials of every method: β as a multiple of the automatic one, constant or falling to 5 %."""
LONGER = {"FedAvg-M": 4.0}
"""The methods whose trials have larger β: the gradients of FedAvg-M have the weight 0.1."""


@dataclass(frozen=True)
class Size:
    """How large the comparison is."""

    samples: int | None = 20_000
    tests: int | None = None
    batch_size: int = 64
    rounds: int = 40
    every: int = 4
    seeds: int = 3
    data: str = "fashion_mnist"
    partitions: Sequence[str] = PARTITIONS
    models: Sequence[str] = tuple(MODELS)
    methods: Sequence[str] = tuple(METHODS)

    def dataset(self) -> Dataset:
        """Return the data, or a random part of them."""
        data = DATASETS[self.data]()
        some = {"train": _some(data.train, self.samples), "test": _some(data.test, self.tests)}
        return replace(data, **some)

    def cells(self) -> list[tuple[str, str]]:
        return list(product(self.models, self.partitions))


SIZES = {
    "quick": Size(samples=10_000, tests=5_000, batch_size=32, rounds=20),
    "medium": Size(),
    "full": Size(samples=None, rounds=200),
}
SMOKE = Size(
    samples=500,
    rounds=2,
    every=1,
    seeds=2,
    data="digits",
    partitions=PARTITIONS[:1],
    models=("MLP",),
    methods=("FedAvg", "FedCanon+"),
)


def _some(split: Split, samples: int | None) -> Split:
    if samples is None or samples >= len(split):
        return split
    rows = np.random.default_rng(0).permutation(len(split))[:samples]
    return split.take(torch.from_numpy(rows))


class Returns(Observer):
    """Counts how often a run with automatic steps diverged and went back."""

    def __init__(self) -> None:
        self.count = 0

    def event(self, message: str) -> None:
        self.count += 1


class Cell:
    """All methods on one model and partition."""

    def __init__(
        self, size: Size, model: str, partition: str, dataset: Dataset, journal: Journal
    ) -> None:
        self._size, self._dataset, self._journal = size, dataset, journal
        self._model, self._partition = model, partition
        self._problems: dict[int, Problem] = {}

    def config(self, seed: int) -> Config:
        """The configuration of a run, but for the algorithm."""
        size = self._size
        return make_config(
            None,
            {
                "seed": seed,
                "rounds": size.rounds,
                "batch_size": size.batch_size,
                "data": {"name": size.data, "partition": self._partition},
                "clients": {"count": 10, "weights": "samples"},
                "model": MODELS[self._model],
                "penalty": "zero",
                "evaluate": {"every": size.every, "gradient": False},
                "engine": {"name": "serial"},
            },
        )

    def problem(self, seed: int) -> Problem:
        if seed not in self._problems:
            self._problems[seed] = build_problem(self.config(seed), self._dataset)
        return self._problems[seed]

    def facts(self, seed: int) -> Facts:
        """What trials on the clients say of step sizes, by the library's own rule."""
        found = self._journal.outcome(
            {"facts of": self._key(seed)},
            lambda: {"L": facts_of(self.config(seed), self.problem(seed)).L},
        )
        return Facts(found["L"], tried=True)

    def run(self, table: Table, seed: int, *, automatic: bool = False) -> Outcome:
        """Train with the steps of a table, in which nothing is open any more."""
        config = self.config(seed).model_copy(update={"algorithm": table})
        return self._journal.outcome(
            {**self._key(seed), "algorithm": table, "automatic": automatic},
            lambda: self._train(config, automatic),
        )

    def _key(self, seed: int) -> Table:
        """What tells the runs of this cell and size from others."""
        size = self._size
        numbers = [size.samples, size.tests, size.batch_size, size.rounds, size.every]
        return {"cell": [size.data, self._model, self._partition], "size": numbers, "seed": seed}

    def _train(self, config: Config, automatic: bool) -> Outcome:
        federation = assemble(config, self.problem(config.seed))
        returns = Returns()
        try:
            result = fit(
                federation,
                config.rounds,
                evaluate_every=self._size.every,
                gradient=False,
                may_slow_down=automatic,
                observers=[returns],
            )
        except DivergenceError:
            return {"accuracy": 0.0, "rounds": [], "curve": [], "diverged": True, "returns": 0}
        curve = [record.test["accuracy"] for record in result.records]
        return {
            "accuracy": mean(curve[-LAST:]),
            "rounds": [record.round for record in result.records],
            "curve": curve,
            "diverged": False,
            "returns": returns.count,
        }

    def tuned(self, label: str) -> Outcome:
        """Try the method with all trials on the first seed; return the best one with all seeds."""
        times = LONGER.get(label, 1.0)
        trials = {
            f"{times * part:g} β, {shape}": self._table(label, times * part, shape)
            for part, shape in TRIALS
        }
        tried = {name: self.run(table, 0)["accuracy"] for name, table in trials.items()}
        best = max(tried, key=tried.__getitem__)
        runs = [self.run(trials[best], seed) for seed in range(self._size.seeds)]
        return {"best": best, "algorithm": trials[best], "trials": tried, "runs": runs}

    def auto(self) -> Outcome:
        """FedCanon+ with nothing chosen, on every seed."""
        runs = []
        for seed in range(self._size.seeds):
            table = fill_in({"name": "fedcanon+", "local_steps": K}, self.facts(seed))
            runs.append(self.run(table, seed, automatic=True))
        return {"best": "auto", "runs": runs}

    def _table(self, label: str, part: float, shape: str) -> Table:
        facts = self.facts(0)
        beta = part / facts.L
        falling = {
            "schedule": "cosine",
            "start": beta,
            "rounds": self._size.rounds,
            "floor": 0.05,
        }
        given = {**METHODS[label], "local_steps": K}
        return fill_in({**given, "beta": beta if shape == "constant" else falling}, facts)


Found = dict[str, dict[str, Outcome]]
"""What was found, by cell and method."""


def compare(journal: Journal, size: Size, first: int | None, progress: Progress) -> Found:
    """Run whatever is not in the journal yet of the ``first`` cells; None is all."""
    dataset, found = size.dataset(), Found()
    cells = size.cells()[:first]
    task = progress.add_task("", total=len(cells) * (len(size.methods) + 1))
    for model, partition in cells:
        cell, name = Cell(size, model, partition, dataset, journal), f"{model}, {partition}"
        own = found[name] = {}
        for label in (*size.methods, AUTO):
            own[label] = cell.auto() if label == AUTO else cell.tuned(label)
            shown = mean(run["accuracy"] for run in own[label]["runs"])
            progress.update(task, advance=1, description=f"{name}: {label} {shown:.4f}")
    return found
