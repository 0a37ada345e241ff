"""Minimises f + h over sites to full accuracy, without any setting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedcanon.algorithms import State
from fedcanon.algorithms.newton import Newton
from fedcanon.engines.work import CountedProx
from fedcanon.expansion import expansion_length
from fedcanon.objectives import Problem
from fedcanon.penalties import Penalty, Zero
from fedcanon.runs.federation import Federation
from fedcanon.runs.fitting import fit
from fedcanon.runs.measures import stationarity, stationarity_step
from fedcanon.runs.named import make_algorithm
from fedcanon.runs.steps import MAX_FLOATS, fill_in, find_facts
from fedcanon.statistics.model import ALL, Model, Rows
from fedcanon.tables.sites import Sites, total

NEWTON_ROUNDS, ROUNDS = 60, 5000


@dataclass(frozen=True)
class Task:
    """What is to be minimised: the loss on some rows and a penalty.

    Args:
        penalty: h, placed on the model.
        start: Where to begin.
        rows: The rows of f.
        known: The expansion of f at the start, if it is known from another task.
    """

    penalty: Penalty
    start: Tensor
    rows: Rows = ALL
    known: Tensor | None = None


@dataclass(frozen=True)
class Solution:
    """A minimiser of f + h.

    Args:
        vector: The model.
        expansion: f, ∇f and ∇²f at the model, of entries that could change; None if there were too
            many for Hessians.
        rounds: The rounds that it took.
        reached: ‖G‖ at the model.
        converged: Whether that is below the tolerance.
    """

    vector: Tensor
    expansion: Tensor | None
    rounds: int
    reached: float
    converged: bool


@dataclass(frozen=True)
class Expansions:
    """The value, gradient and Hessian of f, from the sums of all sites.

    Args:
        sites: The sites.
        model: The model.
        support: The entries that may change; the others stay 0. None is all.
        penalised: Whether models are fitted with a penalty, which guards of sites may ask.
    """

    sites: Sites
    model: Model
    support: tuple[int, ...] | None = None
    penalised: bool = True

    def at(self, points: Sequence[tuple[Rows, Tensor]]) -> list[Tensor]:
        """Return the expansions of f at points, each for its rows, as ``pack_expansion`` does."""
        length = self.model.size if self.support is None else len(self.support)
        portion = max(1, MAX_FLOATS // expansion_length(length))  # of models in one request
        found: list[Tensor] = []
        for first in range(0, len(points), portion):
            some = points[first : first + portion]
            told = total(
                self.sites,
                "expansions",
                model=self.model,
                rows=[rows for rows, _ in some],
                vectors=[self.whole(x).tolist() for _, x in some],
                support=self.support,
                penalised=self.penalised,
            )
            means = told["expansions"] / np.maximum(told["weights"], 1e-300)[:, None]
            found += list(torch.from_numpy(means))
        return found

    def whole(self, x: Tensor) -> Tensor:
        """Return the model with entries on the support."""
        if self.support is None:
            return x
        vector = torch.zeros(self.model.size, dtype=x.dtype)
        vector[list(self.support)] = x
        return vector


def solve_by_newton(
    expansions: Expansions,
    tasks: Sequence[Task],
    tolerance: float,
    watch: Callable[[], object] = lambda: None,
) -> list[Solution]:
    """Solve several tasks at once: in a round the sites answer for all that are not yet solved.

    Args:
        expansions: f.
        tasks: What is to be minimised.
        tolerance: Where to stop: a bound on ‖G‖.
        watch: Is called after each round.
    """
    newton = Newton()
    proxes = [CountedProx(task.penalty) for task in tasks]
    states = [newton.server_init(t.start, prox) for t, prox in zip(tasks, proxes, strict=True)]
    rounds, reached = [0] * len(tasks), [float("inf")] * len(tasks)

    def advance(k: int, expansion: Tensor) -> None:
        states[k] = newton.aggregate(states[k], {}, {"expansion": expansion}, 1.0, proxes[k])
        reached[k] = _stationarity(tasks[k].penalty, states[k])

    for k, task in enumerate(tasks):
        if task.known is not None and torch.equal(states[k]["y"], task.start):
            advance(k, task.known)
    remaining = [k for k in range(len(tasks)) if reached[k] > tolerance]
    while remaining:
        means = expansions.at([(tasks[k].rows, states[k]["y"]) for k in remaining])
        for k, mean in zip(remaining, means, strict=True):
            advance(k, mean)
            rounds[k] += 1
        remaining = [k for k in remaining if reached[k] > tolerance and rounds[k] < NEWTON_ROUNDS]
        watch()
    return [
        Solution(
            expansions.whole(state["z"]),
            state["expansion"],
            count,
            norm,
            norm <= tolerance,
        )
        for state, count, norm in zip(states, rounds, reached, strict=True)
    ]


def solve_without_penalty(expansions: Expansions) -> Solution:
    """Minimise f over all rows, from 0, but for rounding."""
    size = expansions.model.size if expansions.support is None else len(expansions.support)
    start = torch.zeros(size, dtype=torch.float64)
    [known] = expansions.at([(ALL, start)])
    tolerance = max(1e-10, 1e-13 * float(known[1 : 1 + size].norm()))
    [found] = solve_by_newton(expansions, [Task(Zero(), start, known=known)], tolerance)
    return found


def _stationarity(penalty: Penalty, state: State) -> float:
    gradient = state["expansion"][1 : 1 + len(state["z"])]
    return stationarity(penalty, state["z"], gradient, stationarity_step(penalty))


def solve_by_fedcanon(problem: Problem, task: Task, tolerance: float) -> Solution:
    """Solve a task with too many parameters for Hessians, by FedCanon+ with automatic steps."""
    problem = replace(problem, start=task.start)
    table = {"name": "fedcanon+", "local_steps": 10, "alpha": "auto", "beta": "auto"}
    facts = find_facts(problem, table, None, seed=0)
    algorithm = make_algorithm(fill_in(table, replace(facts, rho=task.penalty.rho)))
    result = fit(
        Federation(problem, algorithm, task.penalty),
        ROUNDS,
        gradient=True,
        gradient_tolerance=tolerance,
        may_slow_down=True,
    )
    norm = result.last.gradient_norm
    reached = float("inf") if norm is None else norm
    return Solution(result.vector, None, result.last.round, reached, reached <= tolerance)
