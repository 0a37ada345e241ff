"""Solves f + h to full accuracy, without any setting."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedcanon.algorithms import Algorithm
from fedcanon.expansion import expansion_length
from fedcanon.objectives import Problem
from fedcanon.penalties import Penalty
from fedcanon.runs.federation import Federation
from fedcanon.runs.fit import fit
from fedcanon.runs.named import make_algorithm
from fedcanon.runs.steps import fill_in, find_facts
from fedcanon.search.kappas import null_model
from fedcanon.threads import one_thread

MAX_FLOATS = 5_000_000
"""Newton is used if a client's upload in a round has at most so many floats: up to d = 3,160."""


@dataclass(frozen=True)
class Solution:
    """A minimiser of f + h.

    Args:
        vector: The model.
        rounds: The rounds that it took.
        reached: ‖G‖ at the model, as a part of ‖∇f‖ where all penalised weights are 0.
        converged: Whether that is below the tolerance.
    """

    vector: Tensor
    rounds: int
    reached: float
    converged: bool


@one_thread()
def solve(
    problem: Problem,
    penalty: Penalty,
    *,
    start: Tensor | None = None,
    tolerance: float = 1e-8,
    max_floats: int = MAX_FLOATS,
) -> Solution:
    """Minimise f + h by Newton's method, or by FedCanon+ if there are too many parameters for it.

    Args:
        problem: f.
        penalty: h, placed on the model.
        start: Where to begin; None is the start of the problem.
        tolerance: Where to stop, as a part of ‖∇f‖ where all penalised weights are 0.
        max_floats: Newton is used if a client's upload in a round has at most so many floats.
    """
    if start is not None:
        problem = replace(problem, start=start)
    newton = expansion_length(len(problem.start)) <= max_floats and problem.clients[0].has_hessian
    plain = null_model(problem, penalty)
    scale = float(problem.value_and_gradient(plain)[1].double().norm()) or 1.0
    result = fit(
        Federation(problem, _algorithm(problem, penalty, newton=newton), penalty),
        60 if newton else 5000,
        gradient=True,
        gradient_tolerance=tolerance * scale,
        may_slow_down=not newton,
    )
    norm = result.last.gradient_norm
    reached = float("inf") if norm is None else norm / scale
    return Solution(result.vector, result.last.round, reached, reached <= tolerance)


def _algorithm(problem: Problem, penalty: Penalty, *, newton: bool) -> Algorithm:
    if newton:
        return make_algorithm({"name": "newton", "max_floats": MAX_FLOATS})
    table = {"name": "fedcanon+", "local_steps": 10, "alpha": "auto", "beta": "auto"}
    facts = find_facts(problem, table, None, seed=0)
    return make_algorithm(fill_in(table, replace(facts, rho=penalty.rho)))


def support(vector: Tensor, penalty: Penalty) -> Tensor:
    """Tell which entries of a model are not 0, or carry no penalty."""
    positions = torch.arange(len(vector))
    parts = [part.flatten() for part in penalty.penalised(positions)]
    penalised = torch.zeros(len(vector), dtype=torch.bool).index_fill_(0, torch.cat(parts), True)
    return ~penalised | (vector != 0)
