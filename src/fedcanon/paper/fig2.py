"""Figure 2: control variables against heterogeneous data, without a penalty.

Fashion-MNIST, an MLP, ten clients, K = 20; i.i.d., Dir(0.1) and Dir(0.01). The paper gives all
methods the same step; here each is also run with the step that is best for it by validation.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from fedcanon.data import Dataset
from fedcanon.paper.curves import Panel, draw
from fedcanon.paper.networks import network_config
from fedcanon.paper.outcome import Claim, Outcome, Table, judged
from fedcanon.paper.scales import Scale
from fedcanon.paper.trials import Bench, Training, portion
from fedcanon.paper.tuning import tune
from fedcanon.runs.config import Config, changed
from fedcanon.runs.named import make_dataset

METHODS = {
    "FedCanon": "fedcanon",
    "FedCanon+": "fedcanon+",
    "SCAFFOLD": "scaffold",
    "SCAFFNEW": "scaffnew",
    "FedAvg": "fedavg",
}
CORRECTED = [name for name in METHODS if name != "FedAvg"]
PARTITIONS = {"i.i.d.": "iid", "Dir(0.1)": "dirichlet:0.1", "Dir(0.01)": "dirichlet:0.01"}
LEVEL = 0.01
"""Accuracies that differ by less are taken as equal."""


@dataclass(frozen=True)
class Setting:
    """N = 10, K = 20 and T = 200 are the paper's; it gives neither batch nor step."""

    rounds: int = 200
    every: int = 10
    clients: int = 10
    local_steps: int = 20
    batch_size: int = 32
    betas: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2)
    tuning_rounds: int = 40
    samples: tuple[int | None, int | None] = (None, None)
    last: int = 3
    """Measurements at the end over which the accuracy is averaged."""
    seeds: tuple[int, ...] = (0,)


SETTINGS = {
    Scale.smoke: Setting(
        rounds=6,
        every=2,
        local_steps=5,
        betas=(0.05, 0.1),
        tuning_rounds=2,
        samples=(2000, 1000),
        last=1,
    ),
    Scale.laptop: Setting(),
    Scale.paper: Setting(tuning_rounds=200, seeds=(0, 1, 2)),
}


@dataclass(frozen=True)
class Result:
    """A method on one partition: β, and the trainings for all seeds."""

    beta: float
    trainings: list[Training]

    def accuracy(self, last: int) -> float:
        """Mean test accuracy of the last measurements, over all seeds."""
        return statistics.fmean(training.accuracy(last) for training in self.trainings)

    def shown(self, last: int) -> str:
        """The accuracy as text."""
        diverged = any(training.diverged for training in self.trainings)
        return "diverged" if diverged else f"{self.accuracy(last):.4f}"


Results = dict[str, dict[str, Result]]
"""By partition and method."""


def run(scale: Scale, bench: Bench) -> Iterator[Outcome]:
    """Tune every method on every partition, then train with equal steps and with each one's own."""
    setting = SETTINGS[scale]
    dataset = portion(make_dataset({"name": "fashion_mnist"}), *setting.samples)
    equal: Results = {}
    own: Results = {}
    grids: dict[str, dict[str, Any]] = {}
    for shown, partition in PARTITIONS.items():
        tuned = {
            method: tune(
                bench,
                f"{method}, {shown}",
                _config(setting, partition, name),
                dataset,
                {"beta": setting.betas},
                setting.tuning_rounds,
            )
            for method, name in METHODS.items()
        }
        grids[shown] = {method: found.grid for method, found in tuned.items()}
        betas = {method: found.settings["beta"] for method, found in tuned.items()}
        common = dict.fromkeys(METHODS, betas["FedCanon"])
        equal[shown] = _trained(bench, setting, dataset, shown, common)
        own[shown] = _trained(bench, setting, dataset, shown, betas)
    subset = f" · {dataset.note}" if dataset.note else ""
    yield Outcome(
        item="fig2",
        title=f"Figure 2 · control variables on Fashion-MNIST, MLP, h = 0{subset}",
        scale=scale,
        settings={**asdict(setting), "grids": grids},
        tables=[
            _table(setting, equal, "all methods with FedCanon's β"),
            _table(setting, own, "each with the β that validation chose for it"),
        ],
        claims=judged(scale, _claims(setting, equal, own)),
        data={"equal steps": _numbers(equal), "own steps": _numbers(own)},
        notes=[
            "equal steps: all methods with the β that validation chose for FedCanon; "
            "FedCanon and FedCanon+ have α = βK.",
            "a run that diverged counts with accuracy 0; SCAFFNEW draws its local steps, 20 on "
            "average.",
        ],
        figure=draw([_panel(shown, equal[shown]) for shown in PARTITIONS]),
    )


def _config(setting: Setting, partition: str, method: str) -> Config:
    nothing = {"name": "zero"}
    return network_config(setting, "fashion_mnist", partition, "mlp", {"name": method}, nothing)


def _trained(
    bench: Bench, setting: Setting, dataset: Dataset, shown: str, betas: dict[str, float]
) -> dict[str, Result]:
    results = {}
    for method, beta in betas.items():
        config = _config(setting, PARTITIONS[shown], METHODS[method])
        trainings = [
            bench.train(
                f"{method}, {shown}, β = {beta:g}",
                changed(config, {"algorithm.beta": beta, "seed": seed}),
                dataset,
            )
            for seed in setting.seeds
        ]
        results[method] = Result(beta, trainings)
    return results


def _panel(shown: str, results: dict[str, Result]) -> Panel:
    curves = {}
    for method, result in results.items():
        histories = [training.records for training in result.trainings]
        together = list(zip(*histories, strict=False))  # one that diverged is shorter
        accuracies = [statistics.fmean(r.test["accuracy"] for r in same) for same in together]
        curves[method] = ([same[0].round for same in together], accuracies)
    beta = results["FedCanon"].beta
    return Panel(f"{shown}, β = {beta:g}", "round", "test accuracy", curves)


def _numbers(results: Results) -> dict[str, Any]:
    return {
        shown: {
            method: {
                "beta": result.beta,
                "round, loss, accuracy": [
                    [(r.round, r.loss, r.test["accuracy"]) for r in training.records]
                    for training in result.trainings
                ],
                "diverged": [training.diverged for training in result.trainings],
            }
            for method, result in by_method.items()
        }
        for shown, by_method in results.items()
    }


def _table(setting: Setting, results: Results, steps: str) -> Table:
    rows = []
    for method in METHODS:
        found = [results[shown][method] for shown in PARTITIONS]
        cells = [f"{result.shown(setting.last)} (β {result.beta:g})" for result in found]
        rows.append((method, *cells))
    caption = f"Test accuracy after {setting.rounds} rounds, {steps}."
    return Table(caption, ("", *PARTITIONS), rows)


def _claims(setting: Setting, equal: Results, own: Results) -> list[Claim]:
    def accuracies(results: Results, shown: str) -> dict[str, float]:
        return {m: result.accuracy(setting.last) for m, result in results[shown].items()}

    def behind(results: Results, shown: str) -> float:
        found = accuracies(results, shown)
        return statistics.fmean(found[method] for method in CORRECTED) - found["FedAvg"]

    def spread(results: Results, shown: str, methods: list[str]) -> float:
        found = [accuracies(results, shown)[method] for method in methods]
        return max(found) - min(found)

    everywhere = [spread(equal, shown, CORRECTED) for shown in PARTITIONS]
    iid = spread(equal, "i.i.d.", list(METHODS))
    claims = [
        Claim(
            "i.i.d.: all methods reach the same accuracy",
            f"largest difference {100 * iid:.1f} points with equal steps, "
            f"{100 * spread(own, 'i.i.d.', list(METHODS)):.1f} with own steps",
            iid <= LEVEL,
        )
    ]
    for shown, points in (("Dir(0.1)", 2), ("Dir(0.01)", 10)):
        with_equal, with_own = behind(equal, shown), behind(own, shown)
        claims.append(
            Claim(
                f"{shown}: FedAvg falls about {points} points behind the others",
                f"{100 * with_equal:.1f} points behind their mean with equal steps, "
                f"{100 * with_own:.1f} with own steps",
                with_equal > LEVEL and with_own > LEVEL,
            )
        )
    claims.append(
        Claim(
            "FedCanon, SCAFFOLD and SCAFFNEW stay level under heterogeneity",
            "largest difference among them and FedCanon+: "
            + ", ".join(
                f"{100 * value:.1f} points ({shown})"
                for shown, value in zip(PARTITIONS, everywhere, strict=True)
            ),
            max(everywhere) <= 2 * LEVEL,
        )
    )
    return claims
