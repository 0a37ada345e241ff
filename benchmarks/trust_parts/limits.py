"""Where clips and rules end: a wrong clip, hostile clients below it, unlike honest ones."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from comparison.convex_problems import a9a
from comparison.journal import Journal, Outcome
from comparison.tables import table, write
from rich.progress import Progress
from torch import Tensor

from fedcanon import FedCanonPlus, Federation
from fedcanon import Problem as Clients
from fedcanon.compression import Clip
from fedcanon.engines.robust import Robust
from fedcanon.objectives import Objective
from trust_parts import clients, records
from trust_parts.problems import CLIENTS, Divided, divide, lasso, some_rows

HOSTILE, BUDGET, KAPPA, FORM = 2, 3.0, 5e-3, "λ = 0.02"


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    noises: tuple[float, ...]
    clips: tuple[float, ...]
    """Of the updates of clients."""
    record_clips: tuple[float, ...]
    steps: tuple[float, ...]
    """α in multiples of 1/L, for privacy of clients."""
    record_steps: tuple[float, ...]
    """The same for privacy of records."""
    rounds: int
    record_rounds: int
    rows: int
    seeds: int
    bounds: tuple[float, ...]
    """Clips of the updates of hostile clients."""
    splits: int


FULL = Size(
    noises=(0.1, 1.0),
    clips=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3),
    record_clips=(1.0, 2.0, 3.0, 10.0),
    steps=(4.0, 1.0, 0.25),
    record_steps=(2.0, 6.0, 15.0),
    rounds=250,
    record_rounds=50,
    rows=32_561,
    seeds=2,
    bounds=(0.03, 0.1, 0.3),
    splits=6,
)
SMOKE = Size((0.1,), (0.01, 0.1), (1.0, 3.0), (1.0,), (2.0,), 10, 2, 1000, 1, (0.3,), 1)


class Pulling(Objective):
    """A hostile client: its gradient is one long vector, whatever the model."""

    samples, draws = 1, False

    def __init__(self, like: Objective, direction: Tensor) -> None:
        self.layout, self._direction = like.layout, direction

    def value(self, x: Tensor) -> float:
        return float(self._direction @ x)

    def value_and_gradient(self, x: Tensor) -> tuple[float, Tensor]:
        return self.value(x), self._direction

    def gradient(self, x: Tensor, batch: Tensor | None) -> Tensor:
        return self._direction.clone()


def below_a_clip(breast_cancer: clients.Problem, bound: float, rounds: int) -> Outcome:
    """How far two of ten clients carry the model if every update is clipped to a norm.

    The distance is ‖z − z*‖/‖z*‖ to the optimum of the honest clients.
    """
    divided = breast_cancer.divided
    best = divided.without(range(HOSTILE)).optimum()
    everyone = list(divided.problem().clients)
    direction = torch.ones_like(best) * 1e6
    everyone[:HOSTILE] = [Pulling(one, direction) for one in everyone[:HOSTILE]]
    alpha, K = 1 / breast_cancer.L, clients.K
    federation = Federation(
        Clients(everyone, torch.zeros_like(best)),
        FedCanonPlus(alpha=alpha, beta=alpha / K, local_steps=K),
        divided.penalty,
        compressor=Clip(bound),
    )
    for _ in range(rounds):
        federation.step()
    return {"distance": float((federation.model - best).norm() / best.norm())}


def dropped_honest(partition: str, seed: int, rounds: int) -> Outcome:
    """The honest clients of A9A that the filter leaves out if nobody attacks.

    ``share`` is how much of all records the largest of them has, and 0 if there is none.
    """
    data = some_rows(a9a(), 2000)
    divided = Divided(data, divide(data, partition, seed), lasso(1e-3, data.X.shape[1], 0.02))
    largest = divided.smoothness[1] + 0.02
    federation = Federation(
        divided.problem(),
        FedCanonPlus(alpha=1.6 / largest, beta=0.4 / largest, local_steps=4),
        divided.penalty,
        aggregation=Robust("filter", HOSTILE),
    )
    for _ in range(rounds):
        federation.step()
    sizes = [len(part) for part in divided.parts]
    always = [client for client, rounds_out in federation.drops.items() if rounds_out > rounds / 2]
    share = max((sizes[client] / sum(sizes) for client in always), default=0.0)
    return {"dropped": len(always), "share": share}


Found = dict[str, Any]


def measure(journal: Journal, size: Size, progress: Progress) -> Found:
    """Measure the four limits; clips are compared at the best step of each, in hindsight."""
    partitions = ("dirichlet:0.5", "dirichlet:0.1")
    total = len(size.noises) * len(size.clips) * len(size.steps) * size.seeds
    total += len(size.record_clips) * len(size.record_steps) * size.seeds
    task = progress.add_task("", total=total + len(size.bounds) + len(partitions) * size.splits)

    lengths = {"rounds": size.rounds, "record_rounds": size.record_rounds, "rows": size.rows}

    def outcome(what: str, run: Outcome, work: Any) -> Outcome:
        progress.update(task, description=what)
        found = journal.outcome({"what": what, **lengths, **run}, work)
        progress.advance(task)
        return found

    def smallest(what: str, runs: list[Outcome], gap: Any) -> float:
        """The smallest mean gap over the steps."""
        return min(
            statistics.fmean(
                outcome(what, {**run, "seed": seed}, partial(gap, run, seed))["gap"]
                for seed in range(size.seeds)
            )
            for run in runs
        )

    breast_cancer, adults = clients.Problem(), records.Problem(KAPPA, size.rows)

    def of_clients(run: Outcome, seed: int) -> Outcome:
        setting = clients.Setting(FORM, run["noise"], run["clip"], run["step"], None)
        return {"gap": breast_cancer.run(setting, size.rounds, seed)["last"]}

    def of_records(run: Outcome, seed: int) -> Outcome:
        setting = records.Setting(KAPPA, BUDGET, records.PLUS, run["clip"], run["step"])
        return {"gap": adults.run(setting, size.record_rounds)["averaged"]["gap"]}

    return {
        "clients": [
            [
                smallest(
                    "clips of clients",
                    [{"noise": noise, "clip": clip, "step": step} for step in size.steps],
                    of_clients,
                )
                for clip in size.clips
            ]
            for noise in size.noises
        ],
        "records": [
            smallest(
                "clips of records",
                [{"clip": clip, "step": step} for step in size.record_steps],
                of_records,
            )
            for clip in size.record_clips
        ],
        "hostile": [
            outcome(
                "hostile clients below a clip",
                {"bound": bound},
                partial(below_a_clip, breast_cancer, bound, size.rounds),
            )["distance"]
            for bound in size.bounds
        ],
        "honest": {
            partition: [
                outcome(
                    "honest clients",
                    {"partition": partition, "seed": seed},
                    partial(dropped_honest, partition, seed, size.record_rounds),
                )
                for seed in range(size.splits)
            ]
            for partition in partitions
        },
    }


def report(found: Found, size: Size, path: Path) -> str:
    """Write all results and return the tables."""
    by_noise = zip(size.noises, found["clients"], strict=True)
    tables = {
        f"Privacy of clients, breast cancer, {CLIENTS} clients, {size.rounds} rounds: f + h above "
        "its minimum by the clip": table(
            ("", *(f"τ = {clip:g}" for clip in size.clips)),
            [(f"s = {noise:g}", *(f"{gap:.1e}" for gap in gaps)) for noise, gaps in by_noise],
        ),
        f"Privacy of records, A9A, κ = {KAPPA:g}, ε = {BUDGET:g}, {size.record_rounds} rounds: f + "
        "h above its minimum by the clip; gradients of records have norms up to 3.9": table(
            ("", *(f"C = {clip:g}" for clip in size.record_clips)),
            [("FedCanon+, averaged", *(f"{gap:.4f}" for gap in found["records"]))],
        ),
        f"‖z − z\\*‖/‖z\\*‖ after {size.rounds} rounds if {HOSTILE} of {CLIENTS} clients pull one "
        "way and every update is clipped": table(
            ("", *(f"clip {bound:g}" for bound in size.bounds)),
            [("breast cancer, mean", *(f"{distance:.1f}" for distance in found["hostile"]))],
        ),
        f"Honest clients of A9A (2,000 rows) that the filter with B = {HOSTILE} leaves out, in "
        f"{size.splits} splits without an attack, and the largest share of all records that one of "
        "them has": table(
            ("partition", "left out", "largest share"),
            [
                (
                    partition,
                    ", ".join(str(split["dropped"]) for split in splits),
                    f"{max(split['share'] for split in splits):.0%}",
                )
                for partition, splits in found["honest"].items()
            ],
        ),
    }
    summary = "\n".join(f"{text}:\n\n{shown}" for text, shown in tables.items())
    note = (
        f"Clips are compared at the best αL of each, in hindsight, over {size.seeds} runs: of "
        f"{clients.listed(size.steps)} for clients, of {clients.listed(size.record_steps)} for "
        "records.\n"
    )
    write(path, found, f"{note}\n{summary}")
    return summary
