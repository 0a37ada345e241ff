"""A regularisation path: one model for each κ, each started from the one before."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import tomli_w
import torch
from numpy.typing import NDArray

from fedcanon import theory
from fedcanon.engines.randomness import Purpose, generator
from fedcanon.errors import FedcanonError
from fedcanon.files import write_whole
from fedcanon.objectives import Problem
from fedcanon.penalties import Penalty
from fedcanon.runs.build import AUTO, assemble, build_problem, check_names, fill_in
from fedcanon.runs.config import Config, changed
from fedcanon.runs.model_file import save_model
from fedcanon.runs.named import make_dataset, make_penalty
from fedcanon.runs.observers import Observer
from fedcanon.runs.training import MODEL, fit_as
from fedcanon.search.kappas import automatic_kappas, is_deep, require_kappa
from fedcanon.search.point import Parameters, Point, keep_point, load_point
from fedcanon.search.search_folder import SearchIdentity, open_search
from fedcanon.search.selection import Selection, bic, hold_out

TABLE, SELECTED = "path.csv", "selected.toml"

WatchRun = Callable[[int, int], AbstractContextManager[Observer]]
"""Gives an observer for a run, from its number (counted from 0) and the number of runs."""


@dataclass(frozen=True)
class PathSearch:
    """A path to compute: a model for each κ, of which one is selected.

    Args:
        config: the configuration of all runs, except for their κ.
        selection: how a model is selected.
        kappas: the values of κ in their order; None for 20 values from the smallest one at which
            all weights are zero downwards.
    """

    config: Config
    selection: Selection
    kappas: tuple[float, ...] | None = None

    @property
    def identity(self) -> SearchIdentity:
        """Everything that decides what the models are."""
        return {
            "configuration": self.config.model_dump(),
            "selection": asdict(self.selection),
            "kappas": self.kappas,
        }


@dataclass(frozen=True)
class FollowedPath:
    """A path that has been computed.

    ``points`` are in the order of the κ, ``chosen`` is the number of the one that was selected,
    and ``penalty`` tells which weights are penalised.
    """

    folder: Path
    points: Sequence[Point]
    chosen: int
    penalty: Penalty

    def parameters(self, number: int) -> Parameters:
        """The model of the point with this number."""
        found = load_point(self.folder, number, torch.device("cpu"))
        if found is None:
            raise FedcanonError(f"the model number {number} in {self.folder} is damaged or gone.")
        return found[1]

    def coefficients(self) -> NDArray[np.floating]:
        """The penalised weights, a row for each κ."""
        vectors = [self.parameters(number).vector for number in range(len(self.points))]
        rows = [[part.flatten() for part in self.penalty.penalised(v)] for v in vectors]
        return torch.stack([torch.cat(row) for row in rows]).numpy()


def follow(search: PathSearch, folder: Path, watch: WatchRun) -> FollowedPath:
    """Train the models of a path that its folder does not have yet, and select one.

    The model for one κ is the starting point for the next. The control variables of a method are
    not carried over: they depend on the penalty, while every method may start at any point.

    Args:
        search: the path.
        folder: where its points, its table and the selected model are kept.
        watch: gives an observer for each run.

    Raises:
        FedcanonError: a setting is wrong, a run diverged, or the folder holds another search.
    """
    require_kappa(search.config)
    check_names(search.config)
    problem, validation = _problems(search)
    configs = _configs(search, problem)
    for config in configs:  # shows mistakes before anything is written
        federation = assemble(config, problem)
        federation.penalty.check_step(federation.algorithm.prox_step(config.rounds))
    points: list[Point] = []
    with open_search(folder, search.identity):
        for number, config in enumerate(configs):
            fitted = load_point(folder, number, problem.start.device)
            if fitted is None:
                with watch(number, len(configs)) as observer:
                    fitted = _fit(search.selection, config, problem, validation, observer)
                keep_point(folder, number, *fitted)
            point, parameters = fitted
            points.append(point)
            _refuse_a_dead_start(problem, points, configs)
            problem.buffers.copy_(parameters.buffers)  # which are part of the next start
            problem = replace(problem, start=parameters.vector)
        write_whole(folder / TABLE, _table(search.selection, points))
        chosen = search.selection.best(points)
        found = FollowedPath(folder, points, chosen, federation.penalty)
        save_model(problem.clients[0].module(*found.parameters(chosen)), folder / MODEL)
        settings = configs[chosen].model_dump(exclude_none=True)
        write_whole(folder / SELECTED, tomli_w.dumps(settings))
    return found


def _problems(search: PathSearch) -> tuple[Problem, Problem | None]:
    """The problem to solve; and, if the selection needs it, one with the samples held out."""
    config = search.config
    dataset = make_dataset(config.data.source)
    if search.selection.kind != "validation":
        return build_problem(config, dataset), None
    dataset, held = hold_out(dataset, config.seed)
    pooled = {"clients.count": 1, "data.partition": "iid", "data.augment": []}
    validation = build_problem(changed(config, pooled), replace(dataset, train=held))
    return build_problem(config, dataset), validation


def _configs(search: PathSearch, problem: Problem) -> list[Config]:
    """The configuration for each κ; steps that are "auto" come from one estimate of L."""

    def penalty_at(kappa: float) -> Penalty:
        return make_penalty({**search.config.penalty, "kappa": kappa}, problem.layout)

    configs = [
        changed(search.config, {"penalty.kappa": kappa})
        for kappa in search.kappas or automatic_kappas(problem, penalty_at)
    ]
    algorithm = search.config.algorithm
    if AUTO not in algorithm.values():
        return configs
    L = theory.smoothness(problem, generator(search.config.seed, Purpose.SMOOTHNESS))
    steps = [fill_in(algorithm, L, penalty_at(c.penalty["kappa"]).rho) for c in configs]
    return [changed(c, {"algorithm": own}) for c, own in zip(configs, steps, strict=True)]


def _fit(
    selection: Selection,
    config: Config,
    problem: Problem,
    validation: Problem | None,
    observer: Observer,
) -> tuple[Point, Parameters]:
    kappa = config.penalty["kappa"]
    federation = assemble(config, problem)
    try:
        result = fit_as(config, federation, observers=[observer])
    except FedcanonError as error:
        raise FedcanonError(f"kappa = {kappa:.4g}: {error}") from None
    criterion = result.last.loss
    if validation is not None:
        validation.buffers.copy_(result.buffers)
        criterion = validation.value(result.vector)
    elif selection.kind == "bic":
        problem.buffers.copy_(result.buffers)
        criterion = bic(problem, result.vector)
    zeros, penalised = federation.penalty.zeros(result.vector)
    point = Point(kappa, result.last, result.stopped, penalised - zeros, criterion)
    return point, Parameters(result.vector, result.buffers)


def _refuse_a_dead_start(problem: Problem, points: Sequence[Point], configs: list[Config]) -> None:
    """Raise a FedcanonError if a network has only zeros and the next penalty is weaker.

    Its gradient is zero there, so that no training would change it.
    """
    last, rest = points[-1], configs[len(points) :]
    if is_deep(problem) and not last.nonzeros and rest and rest[0].penalty["kappa"] < last.kappa:
        raise FedcanonError(
            f"all weights are zero at kappa = {last.kappa:.4g}, a point that a network cannot "
            "leave: give --kappas from small to large, such as 1e-4:1e-2:10."
        )


def _table(selection: Selection, points: Sequence[Point]) -> str:
    """The path as CSV, a row for each κ."""
    rows = [
        {
            "kappa": point.kappa,
            "stopped": point.stopped,
            selection.label.replace(" ", "_"): point.criterion,
            "nonzeros": point.nonzeros,
            **point.record.flat(),
        }
        for point in points
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
