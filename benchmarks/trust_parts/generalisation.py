"""Excess risk under attack: what vanishes with more samples, and what does not."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from comparison.convex_problems import a9a
from comparison.journal import Journal, Outcome
from comparison.tables import panels, table, write
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from rich.progress import Progress

from fedcanon import FedCanonPlus, Federation, Logistic, Problem
from fedcanon.data import DATASETS
from fedcanon.engines.robust import Robust
from fedcanon.objectives.least_squares import LeastSquares
from fedcanon.penalties import Zero
from fedcanon.robustness import Adversary
from trust_parts.problems import CLIENTS, Divided, divide, lasso, some_rows

B, FEATURES = 2, 10
NOBODY = "nobody"
ATTACKS = ("push", "alie", "ipm")
RULES = ("filter", "geometric-median")
K = 5
COLOURS = ("#2b8a3e", "#3b5bdb", "#c2255c")
Run = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    spreads: tuple[float, ...]
    """ζ: how much honest clients differ."""
    samples: tuple[int, ...]
    """Samples of each client."""
    seeds: int
    rounds: int
    rows: tuple[int, ...]
    """Samples of A9A, of all clients together."""
    adult_rounds: int
    splits: int


FULL = Size(
    (0.0, 0.5, 1.0), (30, 100, 300, 1000, 3000, 10_000), 5, 60, (500, 2000, 8000, 32_000), 150, 3
)
SMOKE = Size((0.0, 1.0), (30, 300), 1, 3, (500,), 2, 1)


def excess_risk(
    rule: str, attack: str, spread: float, samples: int, seed: int, rounds: int, hostile: int = B
) -> Outcome:
    """Train a linear regression and return its excess risk over the honest population.

    Client i has features x ~ N(0, I) and y = xᵀw_i + N(0, 1). The mean of ‖w_i − w̄‖² over honest
    clients is ζ², which is also how much their gradients differ, at every point. The mean risk of
    honest clients is ‖w − w̄‖²/2 and a constant.
    """
    rng = np.random.default_rng([seed, samples])
    bad = () if attack == NOBODY else tuple(range(hostile))
    honest = CLIENTS - len(bad)
    away = rng.standard_normal((honest, FEATURES))
    away -= away.mean(0)
    away *= spread / np.sqrt(np.square(away).sum(1).mean())
    centre = rng.standard_normal(FEATURES)
    truths = [centre] * len(bad) + list(centre + away)
    clients = []
    for truth in truths:
        X = rng.standard_normal((samples, FEATURES))
        y = X @ truth + rng.standard_normal(samples)
        clients.append(LeastSquares(X, y, intercept=False))
    problem = Problem(clients, torch.zeros(FEATURES, dtype=torch.float64))
    L = np.linalg.norm(np.mean([np.asarray(c.hessian(problem.start)) for c in clients], 0), 2)
    federation = Federation(
        problem,
        FedCanonPlus(alpha=1 / L, beta=1 / (K * L), local_steps=K),
        Zero(),
        aggregation=Robust(rule, 0 if rule == "mean" else hostile),
        adversary=Adversary(attack, bad, seed=seed) if bad else None,
    )
    for _ in range(rounds):
        federation.step()
    return {"excess": float(np.square(federation.model.numpy() - centre).sum() / 2)}


class Adults:
    """A9A with so many samples over ten clients, two of which may be hostile."""

    def __init__(self, by: str, rows: int, rounds: int, seed: int) -> None:
        data, test = some_rows(a9a(), rows, seed), DATASETS["a9a"]().test
        penalty = lasso(1e-4, data.X.shape[1])
        self._divided = Divided(data, divide(data, by, seed), penalty)
        self._rounds, self._seed, self._K = rounds, seed, 4
        bad = np.random.default_rng(1000 + seed).permutation(CLIENTS)[:B]
        self._bad = tuple(bad.tolist())
        self._held_out = Logistic(test.features("float64"), test.targets.numpy())

    def accuracy(self, rule: str, attack: str) -> Outcome:
        """Return the test accuracy; if nobody attacks, bad clients are left out."""
        attacked = attack != NOBODY
        divided = self._divided if attacked else self._divided.without(self._bad)
        L, largest = divided.smoothness
        alpha = min(3.0 / L, 1.6 * self._K / largest)
        federation = Federation(
            divided.problem(),
            FedCanonPlus(alpha=alpha, beta=alpha / self._K, local_steps=self._K),
            divided.penalty,
            aggregation=Robust(rule, B) if attacked else None,
            adversary=Adversary(attack, self._bad, seed=self._seed) if attacked else None,
        )
        for _ in range(self._rounds):
            federation.step()
        return {"accuracy": self._held_out.accuracy(federation.model)}


Found = dict[str, list[Run]]


def measure(journal: Journal, size: Size, progress: Progress) -> Found:
    """Run the regressions, then A9A."""
    pairs = [("mean", NOBODY), *product(RULES, (NOBODY, *ATTACKS))]
    regressions = [
        {"rule": rule, "attack": attack, "spread": spread, "samples": samples}
        for (rule, attack), spread, samples in product(pairs, size.spreads, size.samples)
    ]
    # How the plateau grows with the number of hostile clients.
    few = {"spread": size.spreads[-1], "samples": size.samples[-1], "hostile": 1}
    regressions += [{"rule": r, "attack": a, **few} for r, a in product(RULES, ATTACKS)]
    partitions = list(product(("iid", "dirichlet:0.1"), size.rows))
    accuracies = [("mean", NOBODY), *product(("mean", *RULES), ATTACKS)]
    runs = len(regressions) * size.seeds + len(partitions) * len(accuracies) * size.splits
    task = progress.add_task("", total=runs)
    found: Found = {"regressions": [], "adults": []}
    for run in regressions:
        progress.update(task, description=f"{run['rule']} against {run['attack']}")
        outcomes = [
            journal.outcome(one, partial(excess_risk, **one))
            for seed in range(size.seeds)
            for one in [{**run, "rounds": size.rounds, "seed": seed}]
        ]
        excess = statistics.fmean(outcome["excess"] for outcome in outcomes)
        found["regressions"].append({**run, "excess": excess})
        progress.advance(task, size.seeds)
    for (by, rows), split in product(partitions, range(size.splits)):
        progress.update(task, description=f"A9A, {by}, {rows:,} samples")
        adults = Adults(by, rows, size.adult_rounds, split)
        for rule, attack in accuracies:
            run = {"by": by, "rows": rows, "split": split, "rule": rule, "attack": attack}
            outcome = journal.outcome(
                {**run, "rounds": size.adult_rounds}, partial(adults.accuracy, rule, attack)
            )
            found["adults"].append({**run, **outcome})
            progress.advance(task)
    return found


class Curves:
    """Mean excess risks by rule, attack, ζ and samples."""

    def __init__(self, found: Found, size: Size) -> None:
        self._size = size
        self._excess = {
            (run["rule"], run["attack"], run["spread"], run["samples"]): run["excess"]
            for run in found["regressions"]
            if "hostile" not in run
        }
        self.of_one = {
            (run["rule"], run["attack"]): run["excess"]
            for run in found["regressions"]
            if "hostile" in run
        }

    def of(self, rule: str, attack: str, spread: float) -> list[float]:
        return [self._excess[rule, attack, spread, samples] for samples in self._size.samples]

    def worst(self, rule: str, spread: float) -> list[float]:
        """The largest excess risk of all attacks, for each number of samples."""
        curves = [self.of(rule, attack, spread) for attack in ATTACKS]
        return [max(values) for values in zip(*curves, strict=True)]

    def slope(self, curve: list[float]) -> float:
        """The exponent of the samples, fitted over all of them."""
        return float(np.polyfit(np.log(self._size.samples), np.log(curve), 1)[0])


def report(found: Found, size: Size, path: Path) -> str:
    """Write all results and return the tables."""
    curves = Curves(found, size)
    most, tables = size.samples[-1], [_slopes(curves, size), _plateaus(curves, size)]
    text = f"""\
Linear regression, {FEATURES} features, N = {CLIENTS} clients, B = {B} hostile, noise of deviation
1, {size.seeds} seeds. ζ² is the mean of ‖w_i − w̄‖² over honest clients. The exponent of the samples
n in the excess risk, fitted from n = {size.samples[0]} to {most:,} for each client:

{tables[0]}
Excess risk with n = {most:,}, in units of ζ² where ζ > 0; (B/N)ζ² would be {B / CLIENTS:g}:

{tables[1]}
A9A, ℓ1 1e-4: test accuracy of the honest clients alone, and how many points less it is under the
worst of the attacks {", ".join(ATTACKS)}; means of {size.splits} splits:

{_adults(found)}"""
    write(path, found, text, picture(curves, size))
    return "\n".join([*tables, _adults(found)])


def _slopes(curves: Curves, size: Size) -> str:
    def cells(name: str, curve: dict[float, list[float]]) -> tuple[str, ...]:
        return name, *(f"{curves.slope(values):.2f}" for values in curve.values())

    spreads = size.spreads
    rows = [cells("mean, nobody attacks", {s: curves.of("mean", NOBODY, s) for s in spreads})]
    for rule in RULES:
        honest = {s: curves.of(rule, NOBODY, s) for s in spreads}
        rows.append(cells(f"{rule}, nobody attacks", honest))
        rows.append(cells(f"{rule}, worst attack", {s: curves.worst(rule, s) for s in spreads}))
    return table(("rule", *(f"ζ = {spread:g}" for spread in spreads)), rows)


def _plateaus(curves: Curves, size: Size) -> str:
    def cells(rule: str, attack: str) -> list[str]:
        last = [(spread, curves.of(rule, attack, spread)[-1]) for spread in size.spreads]
        if (rule, attack) in curves.of_one:
            last.append((size.spreads[-1], curves.of_one[rule, attack]))
        return [
            f"{value / spread**2:.3f} ζ²" if spread else f"{value:.1e}" for spread, value in last
        ]

    pairs = [("mean", NOBODY), *product(RULES, (NOBODY, *ATTACKS))]
    columns = len(size.spreads) + 1
    rows = [
        (rule, attack, *shown, *[""] * (columns - len(shown)))
        for rule, attack in pairs
        for shown in [cells(rule, attack)]
    ]
    spreads = [f"ζ = {spread:g}" for spread in size.spreads]
    return table(("rule", "attack", *spreads, f"{spreads[-1]}, B = 1"), rows)


def _adults(found: Found) -> str:
    runs = found["adults"]

    def mean(by: str, rows: int, rule: str, attack: str) -> float:
        same = (by, rows, rule, attack)
        keys = ("by", "rows", "rule", "attack")
        chosen = [run["accuracy"] for run in runs if tuple(run[key] for key in keys) == same]
        return statistics.fmean(chosen)

    def cells(by: str, rows: int) -> list[str]:
        honest = mean(by, rows, "mean", NOBODY)
        worst = [min(mean(by, rows, rule, a) for a in ATTACKS) for rule in ("mean", *RULES)]
        return [f"{honest:.3f}", *(f"{100 * (honest - value):.1f}" for value in worst)]

    places = dict.fromkeys((run["by"], run["rows"]) for run in runs)
    header = ("partition", "samples", "honest alone", *(f"lost by {r}" for r in ("mean", *RULES)))
    return table(header, [(by, f"{rows:,}", *cells(by, rows)) for by, rows in places])


def picture(curves: Curves, size: Size) -> Figure:
    """Excess risk against samples, a panel for each rule, a colour for each ζ."""
    titles = ["mean, nobody attacks", *(f"{rule}, {B} of {CLIENTS} attack" for rule in RULES)]
    figure, every = panels(titles, 3, 3.6, 3.2, "samples of each client")
    for axes, rule in zip(every, ("mean", *RULES), strict=True):
        for spread, colour in zip(size.spreads, COLOURS, strict=False):
            honest = curves.of(rule, NOBODY, spread)
            if rule == "mean":
                axes.loglog(size.samples, honest, color=colour, marker="o", markersize=4)
                continue
            worst = curves.worst(rule, spread)
            axes.loglog(size.samples, honest, color=colour, linestyle="--", linewidth=1.2)
            axes.loglog(size.samples, worst, color=colour, marker="o", markersize=4)
            if spread:
                bound = B / CLIENTS * spread**2
                axes.axhline(bound, color=colour, linestyle=":", linewidth=1.2)
    lowest = min(axes.get_ylim()[0] for axes in every)
    highest = max(axes.get_ylim()[1] for axes in every)
    for axes in every:
        axes.set_ylim(lowest, highest)
    figure.supylabel("excess risk", fontsize=9)
    lines = [
        *(
            Line2D([], [], color=colour, label=f"ζ = {spread:g}")
            for spread, colour in zip(size.spreads, COLOURS, strict=False)
        ),
        Line2D([], [], color="#495057", marker="o", markersize=4, label="worst attack"),
        Line2D([], [], color="#495057", linestyle="--", label="same rule, nobody attacks"),
        Line2D([], [], color="#495057", linestyle=":", label="(B/N)ζ²"),
    ]
    figure.legend(handles=lines, loc="outside upper center", ncols=6, fontsize=9)
    return figure
