"""What is measured along a run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fedcanon.algorithms import Diagnosed, State
from fedcanon.engines import Collected, Engine
from fedcanon.files import Count
from fedcanon.objectives import Problem
from fedcanon.penalties import Penalty

if TYPE_CHECKING:
    import pandas as pd

SMALL = 200_000_000
"""Samples times parameters up to which the full gradient is measured without being asked for."""

SHOWN_CLIENTS = 200
"""Clients up to which the loss of each is recorded."""


@dataclass
class Cost:
    """Everything a run has spent so far."""

    client_prox: Count = 0
    server_prox: Count = 0
    floats_down: Count = 0
    floats_up: Count = 0
    bytes_down: Count = 0
    bytes_up: Count = 0
    seconds: float = 0.0

    def add(self, collected: Collected) -> None:
        """Add one round of the clients."""
        self.client_prox += collected.prox_calls
        for name, count in asdict(collected.traffic).items():
            setattr(self, name, getattr(self, name) + count)


@dataclass(frozen=True)
class Record:
    """Measures of the model after ``round`` rounds; costs are totals since the start.

    ``loss`` is f(z), ``objective`` φ(z) = f(z) + h(z), ``gradient_norm`` ‖G^a(z)‖ with
    G^a(z) = (z − prox_{ah}(z − a∇f(z)))/a (None where it was not asked for), ``zeros`` the number
    of exact zeros among the penalised weights and ``sparsity`` their fraction; ``test`` holds the
    measures on test data, ``diagnostics`` the numbers of the method and of observers,
    ``client_losses`` the f_i(z) of up to 200 clients. ``seconds`` of training exclude
    ``evaluation_seconds``, this one's.
    """

    round: Count
    loss: float
    objective: float
    gradient_norm: float | None
    zeros: Count
    sparsity: float
    test: dict[str, float]
    diagnostics: dict[str, float]
    client_losses: list[float]
    cost: Cost
    evaluation_seconds: float

    def flat(self) -> dict[str, Any]:
        """One row of a table; of the clients' losses only the largest."""
        row = asdict(self)
        losses = row.pop("client_losses")
        worst = {"worst_client_loss": max(losses)} if losses else {}
        tables = [row.pop(name) for name in ("test", "diagnostics", "cost")]
        return {**row, **worst, **tables[0], **tables[1], **tables[2]}


def frame(records: Sequence[Record]) -> pd.DataFrame:
    """Records as a table, a row each."""
    import pandas as pd  # takes half a second, which most commands do not need

    return pd.DataFrame([record.flat() for record in records])


def is_small(problem: Problem) -> bool:
    """Whether the full gradient is cheap enough to be measured without being asked for."""
    samples = sum(client.samples for client in problem.clients)
    return samples * len(problem.start) <= SMALL


def stationarity(penalty: Penalty, z: Tensor, gradient: Tensor, step: float) -> float:
    """‖G^a(z)‖, which is 0 at stationary points: G^a(z) = (z − prox_{ah}(z − a∇f(z)))/a.

    ``step`` is a, ``gradient`` ∇f(z). What z's own rounding hides is not taken for 0: the result is
    at least ε‖z‖/a, or a run that diverges would end with ‖G‖ = 0.
    """
    move = z - penalty.prox_(z - step * gradient, step)
    # In double precision, because float32 norms of long vectors lose four digits.
    rounding = torch.finfo(z.dtype).eps * float(z.double().norm())
    return max(float(move.double().norm()), rounding) / step


def stationarity_step(penalty: Penalty) -> float:
    """The a of ‖G^a‖ where none is set: 1, or half the prox domain 1/ρ if that is smaller."""
    return min(1.0, 0.5 / penalty.rho) if penalty.rho else 1.0


def measure(
    engine: Engine,
    server: State,
    *,
    t: int,
    cost: Cost,
    step: float | None,
    numbers: Mapping[str, float] | None = None,
) -> Record:
    """Measure the server's model after ``t`` rounds.

    ``step`` is the a of ‖G^a‖, None for none; ``numbers`` are added to the diagnostics.
    """
    started = time.perf_counter()
    algorithm, penalty = engine.rules.algorithm, engine.rules.penalty
    z = algorithm.model(server)
    found = engine.evaluate(z, gradient=step is not None)
    own = algorithm.diagnostics(server) if isinstance(algorithm, Diagnosed) else {}
    gradient_norm = None
    if found.gradient is not None and step is not None:
        gradient_norm = stationarity(penalty, z, found.gradient, step)
    zeros, penalised = penalty.zeros(z)
    return Record(
        round=t,
        loss=found.loss,
        objective=found.loss + penalty.value(z),
        gradient_norm=gradient_norm,
        zeros=zeros,
        sparsity=zeros / max(1, penalised),
        test=found.test,
        diagnostics={**own, **(numbers or {})},
        client_losses=found.losses if len(found.losses) <= SHOWN_CLIENTS else [],
        cost=replace(cost),
        evaluation_seconds=time.perf_counter() - started,
    )
