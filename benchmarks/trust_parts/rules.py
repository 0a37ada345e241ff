"""Robust rules: how far hostile clients carry the model away from the honest optimum."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from comparison.convex_problems import Data, a9a, breast_cancer
from comparison.journal import Journal, Outcome
from comparison.tables import table, write
from rich.progress import Progress

from fedcanon import DivergenceError, FedCanonPlus, Federation
from fedcanon.engines.robust import Robust
from fedcanon.robustness import Adversary
from trust_parts.problems import CLIENTS, Divided, divide, lasso, some_rows

B, RIDGE = 2, 0.02
NOBODY = "nobody"
ATTACKS = (NOBODY, "sign_flip", "label_flip", "alie", "ipm", "push")
RULES = ("mean", "filter", "geometric-median", "trimmed-mean", "nnm+trimmed-mean", "median")
FAR = 1e3
"""A relative distance beyond which a run counts as diverged."""


@dataclass(frozen=True)
class Case:
    """A dataset with its κ, the local steps K, the rounds, the longest αL and the splits."""

    load: Callable[[], Data]
    kappa: float
    local_steps: int
    rounds: int
    longest: float
    splits: int
    rows: int | None = None


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    cases: dict[str, Case]
    rules: tuple[str, ...] = RULES
    attacks: tuple[str, ...] = ATTACKS


FIRST = 100
"""The seed of the first split; those before it were used to choose the default rule."""
FULL = Size(
    {
        "breast cancer": Case(breast_cancer, 0.01, 10, 250, 4.0, 4),
        "A9A, 2,000 rows": Case(a9a, 1e-3, 4, 120, 3.0, 2, 2000),
    }
)
SMOKE = Size(
    {"breast cancer": Case(breast_cancer, 0.01, 4, 10, 4.0, 1)},
    ("mean", "filter"),
    (NOBODY, "label_flip", "push"),
)


class Split:
    """A dataset over ten clients, two of them hostile, and the optima without and with these."""

    def __init__(self, case: Case, seed: int) -> None:
        data = case.load()
        data = data if case.rows is None else some_rows(data, case.rows)
        penalty = lasso(case.kappa, data.X.shape[1], RIDGE)
        self._all = Divided(data, divide(data, "dirichlet:0.5", seed), penalty, ridge=RIDGE)
        bad = np.random.default_rng(1000 + seed).permutation(CLIENTS)[:B]
        self._case, self._seed, self._bad = case, seed, tuple(bad.tolist())
        self._optima = {"all": self._all.optimum(), "honest": self._all.without(bad).optimum()}
        L, largest = self._all.smoothness
        # Local steps β = α/K must be stable for the client with the largest L_i.
        self._alpha = min(case.longest / L, 1.6 * case.local_steps / largest)

    def distance(self, rule: str, attack: str) -> Outcome:
        """Return ‖z − z*‖/‖z*‖ at the end of a run; None if it diverged."""
        case, adversary = self._case, None
        if attack != NOBODY:
            adversary = Adversary(attack, self._bad, seed=self._seed)
        K, alpha = case.local_steps, self._alpha
        federation = Federation(
            self._all.problem(flip=self._bad if attack == "label_flip" else ()),
            FedCanonPlus(alpha=alpha, beta=alpha / K, local_steps=K),
            self._all.penalty,
            aggregation=Robust(rule, B),
            adversary=adversary,
        )
        best = self._optima["all" if attack == NOBODY else "honest"]
        try:
            for _ in range(case.rounds):
                federation.step()
        except DivergenceError:
            return {"distance": None}
        distance = float((federation.model - best).norm() / best.norm())
        return {"distance": distance if distance < FAR else None}


Found = dict[str, dict[str, dict[str, list[float | None]]]]
"""The distances of all splits, by case, rule and attack."""


def measure(journal: Journal, size: Size, progress: Progress) -> Found:
    each = len(size.rules) * len(size.attacks)
    task = progress.add_task("", total=each * sum(case.splits for case in size.cases.values()))
    found: Found = {
        name: {rule: {attack: [] for attack in size.attacks} for rule in size.rules}
        for name in size.cases
    }
    for name, case in size.cases.items():
        for seed in range(FIRST, FIRST + case.splits):
            split = Split(case, seed)
            for rule, attack in product(size.rules, size.attacks):
                progress.update(task, description=f"{name}: {rule} against {attack}")
                run = {"case": name, "seed": seed, "rule": rule, "attack": attack}
                outcome = journal.outcome(
                    {**run, "rounds": case.rounds},
                    partial(split.distance, rule, attack),
                )
                found[name][rule][attack].append(outcome["distance"])
                progress.advance(task)
    return found


def report(found: Found, size: Size, path: Path) -> str:
    """Write all results and return the tables."""
    text = f"""\
‖z − z\\*‖/‖z\\*‖ to the optimum z\\* of the honest clients: medians over splits, and in brackets
the worst. N = {CLIENTS} clients by Dir(0.5), B = {B} of them hostile, all clients in every round,
ridge {RIDGE:g}. If nobody attacks, z\\* is the optimum of all clients; rules still expect B. "–"
is farther than {FAR:,.0f}.
"""
    summary = "\n".join(_table(name, size.cases[name], own) for name, own in found.items())
    write(path, found, f"{text}\n{summary}")
    return summary


def _table(name: str, case: Case, own: dict[str, dict[str, list[float | None]]]) -> str:
    title = (
        f"{name}, ℓ1 {case.kappa:g}, K = {case.local_steps}, {case.rounds} rounds, "
        f"{case.splits} splits:\n"
    )
    header = ("rule", *next(iter(own.values())))
    rows = [(rule, *(_cell(values) for values in by.values())) for rule, by in own.items()]
    return f"{title}\n{table(header, rows)}"


def _cell(distances: list[float | None]) -> str:
    values = [float("inf") if value is None else value for value in distances]
    return f"{_shown(statistics.median(values))} ({_shown(max(values))})"


def _shown(value: float) -> str:
    return "–" if value == float("inf") else "0" if value < 0.005 else f"{value:.2f}"
