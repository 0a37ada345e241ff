"""The measures that are taken during a run."""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fedcanon.algorithms import Diagnosed, State
from fedcanon.engines import Collected, Engine, Evaluation
from fedcanon.files import Count
from fedcanon.objectives import Problem
from fedcanon.penalties import Penalty

if TYPE_CHECKING:
    import pandas as pd

SMALL = 200_000_000
"""By default, the full gradient is measured up to this value of samples × parameters."""

SHOWN_CLIENTS = 200
"""The loss of each client is recorded if there are at most so many clients."""


@dataclass
class Cost:
    """The cost of a run so far: prox evaluations, floats and bytes sent, seconds of training."""

    client_prox: Count = 0
    server_prox: Count = 0
    floats_down: Count = 0
    floats_up: Count = 0
    bytes_down: Count = 0
    bytes_up: Count = 0
    seconds: float = 0.0

    def add(self, collected: Collected) -> None:
        """Add the cost of the clients' part of a round."""
        self.client_prox += collected.prox_calls
        for name, count in asdict(collected.traffic).items():
            setattr(self, name, getattr(self, name) + count)


@dataclass(frozen=True)
class Record:
    """The measures of the model z after a number of rounds.

    Args:
        round: The number of rounds.
        loss: f(z); nan in a run that does not measure its clients.
        objective: φ(z) = f(z) + h(z).
        gradient_norm: ‖G^a(z)‖ with G^a(z) = (z − prox_{ah}(z − a∇f(z)))/a, which is 0 at
            stationary points; None if it was not measured.
        zeros: How many of the penalised weights are exactly zero.
        sparsity: Their fraction.
        test: Measures on test data.
        diagnostics: Additional numbers of the method and of observers.
        client_losses: The f_i(z), if there are at most 200 clients.
        cost: Total cost since the start; its seconds do not include evaluations.
        evaluation_seconds: How long this evaluation took.
        distances: How far clients were from the others in the last round, if a robust rule has
            measured it (see ``Verdict``); with more than 200 clients, those of the farthest.
        drops: In how many rounds so far clients were dropped, if they were; no more than 200.
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
    distances: dict[int, float] = field(default_factory=dict)
    drops: dict[int, Count] = field(default_factory=dict)

    def flat(self) -> dict[str, Any]:
        """Return the record as one row of a table, with only the largest of the clients' losses.

        What was not measured is None.
        """
        row = asdict(self)
        hidden = {k: None for k in ("loss", "objective") if math.isnan(row[k])}
        del row["distances"], row["drops"]
        losses = row.pop("client_losses")
        worst = {"worst_client_loss": max(losses)} if losses else {}
        tables = [row.pop(name) for name in ("test", "diagnostics", "cost")]
        return {**row, **hidden, **worst, **tables[0], **tables[1], **tables[2]}


def frame(records: Sequence[Record]) -> pd.DataFrame:
    """Return records as a table with one row each."""
    import pandas as pd  # here, because the import takes half a second

    return pd.DataFrame([record.flat() for record in records])


def is_small(problem: Problem) -> bool:
    """Tell whether the full gradient is cheap enough to be measured by default."""
    return sum(problem.samples) * len(problem.start) <= SMALL


def public_measures(engine: Engine, z: Tensor) -> Evaluation:
    """Measure a model on the server's test data alone, as runs must that hide single clients.

    Losses and gradients of clients are exact numbers about their data. Here they are nan.
    """
    return Evaluation(math.nan, [], None, engine.test(z))


def stationarity(penalty: Penalty, z: Tensor, gradient: Tensor, step: float) -> float:
    """Return ‖G^a(z)‖ with G^a(z) = (z − prox_{ah}(z − a∇f(z)))/a, which is 0 at stationary points.

    The result is at least ε‖z‖/a, the rounding error of z: otherwise a run that diverges could
    seem to be stationary.

    Args:
        penalty: The regulariser h.
        z: The model.
        gradient: ∇f(z).
        step: The step a.
    """
    move = z - penalty.prox_(z - step * gradient, step)
    # In double precision, because float32 norms of long vectors lose four digits.
    rounding = torch.finfo(z.dtype).eps * float(z.double().norm())
    return max(float(move.double().norm()), rounding) / step


def stationarity_step(penalty: Penalty) -> float:
    """Return the default step a of ‖G^a‖: min(1, 1/(2ρ))."""
    return min(1.0, 0.5 / penalty.rho) if penalty.rho else 1.0


def measure(
    engine: Engine,
    server: State,
    *,
    t: int,
    cost: Cost,
    step: float | None,
    clients: bool = True,
    numbers: Mapping[str, float] | None = None,
    found: Evaluation | None = None,
    distances: Mapping[int, float] | None = None,
    drops: Mapping[int, int] | None = None,
) -> Record:
    """Measure a model.

    Args:
        engine: The engine, which evaluates the model on clients and test data.
        server: The server's state with the model.
        t: The number of rounds after which it was the model.
        cost: The cost until then.
        step: The step a of ‖G^a‖; None does not measure it.
        clients: Whether the losses of clients are measured; otherwise only test data are.
        numbers: Additional diagnostics.
        found: What the engine has measured already.
        distances: What a robust rule has found in the last round.
        drops: In how many rounds until then it has dropped clients.
    """
    started = time.perf_counter()
    algorithm, penalty = engine.rules.algorithm, engine.rules.penalty
    z = algorithm.model(server)
    if not (clients and engine.measures_clients):
        found = public_measures(engine, z)
    found = found or engine.evaluate(z, gradient=step is not None)
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
        distances=_largest(distances or {}),
        drops=_largest(drops or {}),
    )


def _largest(numbers: Mapping[int, Any]) -> dict[int, Any]:
    """Return the clients with the largest numbers, in increasing order of clients."""
    chosen = heapq.nlargest(SHOWN_CLIENTS, numbers, key=lambda client: numbers[client])
    return {client: numbers[client] for client in sorted(chosen)}
