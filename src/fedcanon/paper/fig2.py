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
from fedcanon.paper.trials import SAME_ACCURACY, Trainer, Training, portion
from fedcanon.paper.tuning import Tuned, train_tuned, tune
from fedcanon.runs.config import Config
from fedcanon.runs.named import make_dataset

METHODS = {
    "FedCanon": "fedcanon",
    "FedCanon+": "fedcanon+",
    "SCAFFOLD": "scaffold",
    "SCAFFNEW": "scaffnew",
    "FedAvg": "fedavg",
}
CORRECTED = ["FedCanon", "SCAFFOLD", "SCAFFNEW"]
"""The methods of the paper that have control variables."""
PARTITIONS = {"i.i.d.": "iid", "Dir(0.1)": "dirichlet:0.1", "Dir(0.01)": "dirichlet:0.01"}


@dataclass(frozen=True)
class Setting:
    """N = 10, K = 20 and T = 200 are the paper's; it gives neither batch nor step."""

    rounds: int = 200
    every: int = 10
    clients: int = 10
    local_steps: int = 20
    batch_size: int = 32
    betas: tuple[float, ...] = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
    tuning_rounds: int = 40
    samples: tuple[int | None, int | None] = (None, None)
    last: int = 5
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
class MethodResult:
    """A method on one partition: β, and the trainings for all seeds."""

    beta: float
    trainings: list[Training]

    def accuracy(self, last: int) -> float:
        """Mean test accuracy of the last measurements, over all seeds."""
        return statistics.fmean(training.accuracy(last) for training in self.trainings)

    @property
    def diverged(self) -> bool:
        """Whether any of them has."""
        return any(training.diverged for training in self.trainings)

    def shown(self, last: int) -> str:
        """The accuracy as text."""
        return "diverged" if self.diverged else f"{self.accuracy(last):.4f}"


Results = dict[str, dict[str, MethodResult]]
"""By partition and method."""


def run(scale: Scale, trainer: Trainer) -> Iterator[Outcome]:
    """Tune every method on every partition, then train with equal steps and with each one's own."""
    setting = SETTINGS[scale]
    dataset = portion(make_dataset({"name": "fashion_mnist"}), *setting.samples)
    equal: Results = {}
    own: Results = {}
    grids: dict[str, dict[str, Any]] = {}
    for shown, partition in PARTITIONS.items():
        tuned = {
            method: tune(
                trainer,
                f"{method}, {shown}",
                _config(setting, partition, name),
                dataset,
                {"beta": setting.betas},
                setting.tuning_rounds,
            )
            for method, name in METHODS.items()
        }
        grids[shown] = {method: found.grid for method, found in tuned.items()}
        own[shown] = {
            method: _trained(trainer, setting, dataset, shown, method, found)
            for method, found in tuned.items()
        }
        same = Tuned([{"beta": own[shown]["FedCanon"].beta}], [])
        equal[shown] = {
            method: _trained(trainer, setting, dataset, shown, method, same) for method in METHODS
        }
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
            f"accuracies are means over the last {setting.last} measurements; SCAFFNEW draws its "
            f"local steps, {setting.local_steps} on average.",
            "without a penalty and with α = βK, FedCanon, FedCanon+ and SCAFFOLD are one method up "
            "to rounding: their differences show how far chance goes.",
            "where a run diverges the next best β is taken.",
        ],
        figure=draw([_panel(shown, equal[shown]) for shown in PARTITIONS]),
    )


def _config(setting: Setting, partition: str, method: str) -> Config:
    nothing = {"name": "zero"}
    return network_config(setting, "fashion_mnist", partition, "mlp", {"name": method}, nothing)


def _trained(
    trainer: Trainer, setting: Setting, dataset: Dataset, shown: str, method: str, tuned: Tuned
) -> MethodResult:
    label, config = f"{method}, {shown}", _config(setting, PARTITIONS[shown], METHODS[method])
    steps, trainings = train_tuned(trainer, label, config, dataset, tuned, setting.seeds)
    return MethodResult(steps["beta"], trainings)


def _panel(shown: str, results: dict[str, MethodResult]) -> Panel:
    curves = {}
    for method, result in results.items():
        histories = [training.records for training in result.trainings]
        together = list(zip(*histories, strict=False))  # one that diverged is shorter
        accuracies = [statistics.fmean(r.test["accuracy"] for r in same) for same in together]
        curves[method] = ([same[0].round for same in together], accuracies)
    beta = results["FedCanon"].beta
    return Panel(f"{shown}, β = {beta:g}", "round", "test accuracy", curves, after_start=True)


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
    claims = []
    for results, steps in ((equal, "equal steps"), (own, "own steps")):
        spread = _spread(setting, results["i.i.d."], list(METHODS))
        claims.append(
            Claim(
                f"i.i.d.: all methods reach the same accuracy ({steps})",
                f"largest difference {100 * spread:.1f} points",
                spread <= SAME_ACCURACY,
            )
        )
        for shown, points in (("Dir(0.1)", 2), ("Dir(0.01)", 10)):
            behind, diverged = _behind(setting, results[shown])
            noise = _fluctuation(setting, results[shown], [*CORRECTED, "FedAvg"])
            ending = f"; {', '.join(diverged)} diverged" if diverged else ""
            claims.append(
                Claim(
                    f"{shown}: FedAvg falls behind the others, by about {points} points ({steps})",
                    f"{100 * behind:.1f} points behind their mean; one curve varies by "
                    f"{100 * noise:.1f}{ending}",
                    behind > max(SAME_ACCURACY, noise),
                )
            )
    spreads = [_spread(setting, equal[shown], CORRECTED) for shown in PARTITIONS]
    noises = [_fluctuation(setting, equal[shown], CORRECTED) for shown in PARTITIONS]
    measured = ", ".join(
        f"{100 * spread:.1f} points ({shown}; one curve varies by {100 * noise:.1f})"
        for shown, spread, noise in zip(PARTITIONS, spreads, noises, strict=True)
    )
    claims.append(
        Claim(
            "FedCanon, SCAFFOLD and SCAFFNEW stay level under heterogeneity (equal steps)",
            f"largest difference among them: {measured}",
            all(s <= max(SAME_ACCURACY, n) for s, n in zip(spreads, noises, strict=True)),
        )
    )
    return claims


def _fluctuation(setting: Setting, results: dict[str, MethodResult], methods: list[str]) -> float:
    """The largest standard deviation of a method's last measurements."""
    if setting.last < 2:
        return 0.0
    ends = [
        [record.test["accuracy"] for record in training.records[-setting.last :]]
        for method in methods
        for training in results[method].trainings
    ]
    return max(statistics.stdev(accuracies) for accuracies in ends if len(accuracies) > 1)


def _spread(setting: Setting, results: dict[str, MethodResult], methods: list[str]) -> float:
    found = [results[method].accuracy(setting.last) for method in methods]
    return max(found) - min(found)


def _behind(setting: Setting, results: dict[str, MethodResult]) -> tuple[float, list[str]]:
    """How far FedAvg is behind the mean of the corrected methods, without those that diverged."""
    diverged = [method for method in CORRECTED if results[method].diverged]
    others = [
        results[method].accuracy(setting.last) for method in CORRECTED if method not in diverged
    ]
    # Where none of them is left, FedAvg is behind none.
    mean = statistics.fmean(others) if others else 0.0
    return mean - results["FedAvg"].accuracy(setting.last), diverged
