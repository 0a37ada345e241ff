"""A regularisation path: one model for each κ, each started from the one before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import torch
from numpy.typing import NDArray

from fedcanon.errors import FedcanonError
from fedcanon.files import write_whole
from fedcanon.objectives import Problem
from fedcanon.penalties import Penalty
from fedcanon.runs.build import assemble, build_problem, check_names
from fedcanon.runs.config import Config, changed
from fedcanon.runs.federation import Federation
from fedcanon.runs.fitting import ALL_ROUNDS
from fedcanon.runs.measures import measure, stationarity_step
from fedcanon.runs.model_file import save_model
from fedcanon.runs.named import make_dataset, make_penalty
from fedcanon.runs.observers import Observer
from fedcanon.runs.result import Result
from fedcanon.runs.steps import facts_of, open_steps, with_steps
from fedcanon.runs.training import MODEL, fit_as
from fedcanon.search.kappas import automatic_kappas, is_deep, null_model, require_kappa
from fedcanon.search.point import Parameters, Point, keep_point, load_point
from fedcanon.search.search_folder import SearchIdentity, open_search, write_table
from fedcanon.search.selection import Selection, bic, hold_out
from fedcanon.threads import one_thread

TABLE, SELECTED = "path.csv", "selected.toml"

WatchRun = Callable[[int, int], AbstractContextManager[Observer]]
"""Gives an observer for the fit of the model with this number, and is told how many there are."""


@dataclass(frozen=True)
class PathSearch:
    """What is asked of a path.

    Args:
        config: What each model is trained by, but for its κ.
        selection: Which of the models is taken.
        kappas: The values of κ in their order. Without them the path begins where all penalised
            weights are zero.
    """

    config: Config
    selection: Selection
    kappas: tuple[float, ...] | None = None

    @property
    def identity(self) -> SearchIdentity:
        """What must be the same for a path that was interrupted to go on in its folder."""
        return {
            "configuration": self.config.model_dump(),
            "selection": asdict(self.selection),
            "kappas": self.kappas,
        }


@dataclass(frozen=True)
class FollowedPath:
    """A path that is complete.

    Attributes:
        folder: Where it is kept.
        points: The measures of the model for each κ.
        chosen: The number of the model that was taken.
        penalty: The penalty, which says what weights are penalised.
    """

    folder: Path
    points: Sequence[Point]
    chosen: int
    penalty: Penalty

    @property
    def unfinished(self) -> list[int]:
        """The numbers of the models that met no tolerance before their rounds ended."""
        return [number for number, point in enumerate(self.points) if point.stopped == ALL_ROUNDS]

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


@one_thread()
def follow(search: PathSearch, folder: Path, watch: WatchRun) -> FollowedPath:
    """Train the models of a path that its folder does not have yet, and select one.

    The model of one κ is the start for the next. Nothing else is carried over: the variables of a
    method belong to its penalty and the steps it has made, but a start is right for every method.
    The first model of an automatic path needs no training: at that κ it is the null model.

    Args:
        search: What is asked.
        folder: Where the path is kept; what is there already is not done again.
        watch: Shows how a fit goes on.

    Raises:
        FedcanonError: The configuration cannot be run, a fit diverges, or no model can be taken.
    """
    require_kappa(search.config)
    check_names(search.config)
    if search.config.privacy is not None:
        raise FedcanonError(
            "a path trains a model for every κ and chooses by their losses, and each would spend "
            "the privacy budget: leave out privacy, or choose κ on public data."
        )
    problem, validation = _problems(search)
    configs = _configs(search, problem)
    automatic = search.kappas is None
    if automatic:
        placed = make_penalty(configs[0].penalty, problem.layout)
        problem = replace(problem, start=null_model(problem, placed))
    for config in configs:  # refuses what cannot run before anything is kept
        federation = assemble(config, problem)
        federation.penalty.check_step(federation.algorithm.prox_step(config.rounds))
    points: list[Point] = []
    with open_search(folder, search.identity):
        for number, config in enumerate(configs):
            fitted = load_point(folder, number, problem.start.device)
            if fitted is None:
                federation = assemble(config, problem)
                if automatic and number == 0:
                    result = _untrained(config, federation)
                else:
                    with watch(number, len(configs)) as observer:
                        result = _trained(config, federation, observer)
                fitted = _judged(search.selection, config, federation, result, validation)
                keep_point(folder, number, *fitted)
            point, parameters = fitted
            points.append(point)
            _refuse_a_dead_start(problem, points, configs)
            problem.buffers.copy_(parameters.buffers)  # which are part of the next start
            problem = replace(problem, start=parameters.vector)
        write_table(folder / TABLE, _rows(search.selection, points))
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
    """The configuration for each κ; automatic steps come from the same facts."""

    def penalty_at(kappa: float) -> Penalty:
        return make_penalty({**search.config.penalty, "kappa": kappa}, problem.layout)

    configs = [
        changed(search.config, {"penalty.kappa": kappa})
        for kappa in search.kappas or automatic_kappas(problem, penalty_at)
    ]
    if not open_steps(search.config.algorithm):
        return configs
    facts = facts_of(search.config, problem)
    return [with_steps(config, problem, facts) for config in configs]


def _trained(config: Config, federation: Federation, observer: Observer) -> Result:
    try:
        return fit_as(config, federation, observers=[observer])
    except FedcanonError as error:
        raise FedcanonError(f"kappa = {config.penalty['kappa']:.4g}: {error}") from None


def _untrained(config: Config, federation: Federation) -> Result:
    """The model that training starts from, measured."""
    step = config.evaluate.step or stationarity_step(federation.penalty)
    record = measure(federation.engine, federation.server, t=0, cost=federation.cost, step=step)
    vector, buffers = federation.model, federation.engine.model_buffers
    federation.close()
    make_model = partial(federation.problem.clients[0].module, vector, buffers)
    return Result(vector, buffers, [record], "the null model needs no training", make_model)


def _judged(
    selection: Selection,
    config: Config,
    federation: Federation,
    result: Result,
    validation: Problem | None,
) -> tuple[Point, Parameters]:
    """The measures of a model and its criterion, and the model itself."""
    criterion = result.last.loss
    if validation is not None:
        validation.buffers.copy_(result.buffers)
        criterion = validation.value(result.vector)
    elif selection.kind == "bic":
        federation.problem.buffers.copy_(result.buffers)
        criterion = bic(federation.problem, result.vector)
    zeros, penalised = federation.penalty.zeros(result.vector)
    point = Point(
        config.penalty["kappa"], result.last, result.stopped, penalised - zeros, criterion
    )
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


def _rows(selection: Selection, points: Sequence[Point]) -> list[dict[str, Any]]:
    """The table of a path: a row for each κ."""
    return [
        {
            "kappa": point.kappa,
            "stopped": point.stopped,
            selection.label.replace(" ", "_"): point.criterion,
            "nonzeros": point.nonzeros,
            **point.record.flat(),
        }
        for point in points
    ]
