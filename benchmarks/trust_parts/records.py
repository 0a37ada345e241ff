"""Privacy of records: the objective, the accuracy and the selection that are left on A9A."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple

import torch
from comparison.convex_problems import a9a
from comparison.journal import Journal, Outcome
from comparison.tables import table, write
from rich.progress import Progress
from torch import Tensor

from fedcanon import FedCanonPlus, Federation, Logistic
from fedcanon.algorithms import FedMiD
from fedcanon.data import DATASETS
from fedcanon.privacy import RecordPrivacy
from trust_parts.problems import CLIENTS, Divided, divide, lasso, some_rows

K, DELTA, CUT = 5, 1e-5, 0.01
BUDGETS = (1.0, 3.0, 8.0)
PLUS, LOCAL = "FedCanon+", "FedMiD"
MODELS = {
    PLUS: ("last", "averaged"),
    LOCAL: ("averaged", "cut"),
}
"""The models of each method that are measured; "cut" has no weights below 0.01."""


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    rows: int
    rounds: int
    cases: tuple[tuple[float, float], ...]
    """κ and clip C."""
    steps: tuple[float, ...]
    """α in multiples of 1/L."""
    seeds: int


FULL = Size(32_561, 50, ((1e-3, 3.0), (5e-3, 3.0), (5e-3, 2.0)), (2.0, 6.0, 15.0), 2)
SMOKE = Size(2000, 4, ((5e-3, 3.0),), (2.0,), 1)


class Setting(NamedTuple):
    """One private run."""

    kappa: float
    budget: float
    method: str
    clip: float
    step: float


class Problem:
    """A9A over ten clients that are weighted by their samples, with one κ."""

    def __init__(self, kappa: float, rows: int) -> None:
        data, test = some_rows(a9a(), rows), DATASETS["a9a"]().test
        self.penalty = lasso(kappa, data.X.shape[1])
        parts = divide(data, "dirichlet:0.5", 0)
        divided = Divided(data, parts, self.penalty, weighted=True)
        self.problem, (self.L, _) = divided.problem(), divided.smoothness
        self._held_out = Logistic(test.features("float64"), test.targets.numpy())
        z = divided.optimum()
        self._best, self._selected = divided.objective(z), z[:-1] != 0
        self.optimum = {
            "accuracy": self._held_out.accuracy(z),
            "selected": int(self._selected.sum()),
            "f1 of all": self._f1(torch.ones_like(z)),
            "clients": [len(part) for part in parts],
        }

    def measured(self, z: Tensor) -> dict[str, float]:
        gap = self.problem.value(z) + self.penalty.value(z) - self._best
        return {"gap": gap, "accuracy": self._held_out.accuracy(z), "f1": self._f1(z)}

    def _f1(self, z: Tensor) -> float:
        """The F1 score of the selected weights against those of the optimum."""
        own, both = z[:-1] != 0, int(((z[:-1] != 0) & self._selected).sum())
        return 2 * both / int(own.sum() + self._selected.sum())

    def run(self, setting: Setting, rounds: int) -> Outcome:
        """Train with privacy and measure the models of a method."""
        privacy = RecordPrivacy.within(
            setting.budget, rounds, clip=setting.clip, delta=DELTA, steps=K
        )
        alpha = setting.step / self.L
        algorithm = (
            FedCanonPlus(alpha=alpha, beta=alpha / K, local_steps=K)
            if setting.method == PLUS
            else FedMiD(beta=alpha / K, local_steps=K, server_prox="none")
        )
        federation = Federation(self.problem, algorithm, self.penalty, privacy=privacy)
        total, half = torch.zeros_like(self.problem.start), rounds // 2
        for t in range(rounds):
            federation.step()
            total += federation.server["z"] if t >= half else 0
        models = {"last": federation.server["z"], "averaged": federation.model}
        if setting.method == LOCAL:  # FedCanon+ averages itself
            models["averaged"] = total / (rounds - half)
        models["cut"] = torch.where(models["averaged"].abs() > CUT, models["averaged"], 0.0)
        outcome = {name: self.measured(models[name]) for name in MODELS[setting.method]}
        return {**outcome, "noise": privacy.noise, "warned": bool(federation.warnings(rounds))}


Found = dict[str, dict[str, Outcome]]
"""For each κ and clip: "optimum", and the best step of every method, model and budget."""


def measure(journal: Journal, size: Size, progress: Progress) -> Found:
    """Take the step with the smallest mean gap, in hindsight."""
    each = len(size.steps) * len(BUDGETS) * len(MODELS) * size.seeds
    task = progress.add_task("", total=len(size.cases) * each)
    found: Found = {}
    for kappa, clip in size.cases:
        problem = Problem(kappa, size.rows)
        own = found[f"κ = {kappa:g}, C = {clip:g}"] = {"optimum": problem.optimum}

        def outcomes(setting: Setting, problem: Problem = problem) -> list[Outcome]:
            progress.update(task, description=f"κ = {setting.kappa:g}, ε = {setting.budget:g}")
            run = {**setting._asdict(), "rows": size.rows, "rounds": size.rounds}
            progress.advance(task, size.seeds)
            return [
                journal.outcome({**run, "seed": seed}, lambda: problem.run(setting, size.rounds))
                for seed in range(size.seeds)
            ]

        for budget, (method, models) in product(BUDGETS, MODELS.items()):
            tried = [
                (setting, outcomes(setting))
                for setting in (Setting(kappa, budget, method, clip, step) for step in size.steps)
            ]
            for model in models:
                setting, seeds = min(tried, key=lambda one: _mean(one[1], model, "gap"))
                means = {what: _mean(seeds, model, what) for what in ("gap", "accuracy", "f1")}
                warned = {"noise": seeds[0]["noise"], "warned": seeds[0]["warned"]}
                own[f"{method}, {model}, {budget:g}"] = {**means, **warned, "step": setting.step}
    return found


def _mean(outcomes: list[Outcome], model: str, what: str) -> float:
    return statistics.fmean(outcome[model][what] for outcome in outcomes)


def report(found: Found, size: Size, path: Path) -> str:
    """Write all results and return the tables."""
    text = f"""\
A9A ({size.rows:,} records), {CLIENTS} clients by Dir(0.5), full batches, K = {K},
T = {size.rounds}, δ = 1e-5, {size.seeds} runs for each setting. A cell has f + h above its minimum,
the test accuracy, and the F1 score of the selection against that of the optimum; in brackets αL, of
{", ".join(f"{step:g}" for step in size.steps)} the one with the smallest gap, in hindsight. "cut"
is FedMiD, averaged, without weights below {CUT:g}. Gradients of records have norms up to 3.9.
"""
    summary = "\n".join(_table(name, own) for name, own in found.items())
    write(path, found, f"{text}\n{summary}")
    return summary


def _table(name: str, own: dict[str, Outcome]) -> str:
    best = own["optimum"]
    title = (
        f"{name}; without privacy {best['accuracy']:.3f}, {best['selected']} weights are "
        f"selected, and F1 of selecting all is {best['f1 of all']:.2f}:\n"
    )

    def cell(method: str, model: str, budget: float) -> str:
        c = own[f"{method}, {model}, {budget:g}"]
        numbers = f"{c['gap']:.4f} / {c['accuracy']:.3f} / {c['f1']:.2f}"
        return f"{numbers} ({c['step']:g})"

    rows = [
        (f"{method}, {model}", *(cell(method, model, budget) for budget in BUDGETS))
        for method, models in MODELS.items()
        for model in models
    ]
    averaged = [own[f"{PLUS}, averaged, {budget:g}"] for budget in BUDGETS]
    rows.append(
        ('warns "the selection is noise"', *("yes" if c["warned"] else "no" for c in averaged))
    )
    return f"{title}\n{table(('', *(f'ε = {budget:g}' for budget in BUDGETS)), rows)}"
