"""Figure 2: control variables against heterogeneous data, without a penalty.

Fashion-MNIST, an MLP, ten clients, K = 20; i.i.d., Dir(0.1) and Dir(0.01). The paper gives all
methods the same step; here each is also run with the step that is best for it by validation.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fedcanon.paper.curves import Panel, draw
from fedcanon.paper.networks import FashionLengths
from fedcanon.paper.outcome import Claim, Outcome, Scale, Table, judged
from fedcanon.paper.trials import SAME_ACCURACY, Trainer, portion
from fedcanon.paper.tuning import Results, Trained, Tuner, of_each
from fedcanon.runs.named import make_dataset

METHODS = ("FedCanon", "FedCanon+", "SCAFFOLD", "SCAFFNEW", "FedAvg")
CORRECTED = ("FedCanon", "SCAFFOLD", "SCAFFNEW")
"""The methods of the paper that have control variables."""
PARTITIONS = {"i.i.d.": "iid", "Dir(0.1)": "dirichlet:0.1", "Dir(0.01)": "dirichlet:0.01"}


@dataclass(frozen=True)
class RepeatedLengths(FashionLengths):
    """Trainings that are repeated for some seeds.

    N = 10, K = 20 and T = 200 are the paper's; it gives neither batch nor step.
    """

    every: int | None = 10
    betas: tuple[float, ...] = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
    tuning_rounds: int = 40
    last: int = 5
    """Measurements at the end over which the accuracy is averaged."""
    seeds: tuple[int, ...] = (0,)


SETTINGS = {
    Scale.smoke: RepeatedLengths(
        rounds=6,
        every=2,
        local_steps=5,
        betas=(0.05, 0.1),
        tuning_rounds=2,
        samples=(2000, 1000),
        last=1,
    ),
    Scale.laptop: RepeatedLengths(),
    Scale.paper: RepeatedLengths(tuning_rounds=200, seeds=(0, 1, 2)),
}


def run(scale: Scale, trainer: Trainer) -> Iterator[Outcome]:
    """Tune every method on every partition, then train with equal steps and with each one's own."""
    lengths = SETTINGS[scale]
    dataset = portion(make_dataset({"name": "fashion_mnist"}), *lengths.samples)
    tuner = Tuner(trainer, dataset, lengths.tuning_rounds, lengths.seeds, lengths.last)
    equal, own = {}, {}
    for shown, partition in PARTITIONS.items():
        configs = lengths.configs(METHODS, partition, "mlp", {"name": "zero"})
        own[shown] = tuner.train_all(shown, configs, lengths.betas)
        equal[shown] = tuner.train_all(shown, configs, [own[shown]["FedCanon"].beta])
    subset = f" · {dataset.note}" if dataset.note else ""
    yield Outcome(
        title=f"Figure 2 · control variables on Fashion-MNIST, MLP, h = 0{subset}",
        scale=scale,
        settings={**asdict(lengths), "grids": of_each(own, lambda trained: trained.grid)},
        tables=[
            _table(lengths.rounds, equal, "all methods with FedCanon's β"),
            _table(lengths.rounds, own, "each with the β that validation chose for it"),
        ],
        claims=judged(
            scale, [*_claims(equal, "equal steps"), *_claims(own, "own steps"), _level(equal)]
        ),
        data={"equal steps": of_each(equal, _numbers), "own steps": of_each(own, _numbers)},
        notes=[
            "equal steps: all methods with the β that validation chose for FedCanon; "
            "FedCanon and FedCanon+ have α = βK.",
            f"accuracies are means over the last {lengths.last} measurements; SCAFFNEW draws its "
            f"local steps, {lengths.local_steps} on average.",
            "without a penalty and with α = βK, FedCanon, FedCanon+ and SCAFFOLD are one method up "
            "to rounding: their differences show how far chance goes.",
            "where a run diverges the next best β is taken.",
        ],
        figure=draw([_panel(shown, found) for shown, found in equal.items()]),
    )


def _panel(shown: str, found: Mapping[str, Trained]) -> Panel:
    curves = {method: trained.curve for method, trained in found.items()}
    title = f"{shown}, β = {found['FedCanon'].beta:g}"
    return Panel(title, "round", "test accuracy", curves, after_start=True)


def _numbers(trained: Trained) -> dict[str, Any]:
    return {
        "beta": trained.beta,
        "round, loss, accuracy": [training.points for training in trained.trainings],
        "diverged": [training.diverged for training in trained.trainings],
    }


def _table(rounds: int, results: Results, steps: str) -> Table:
    rows = [(method, *(found[method].shown for found in results.values())) for method in METHODS]
    return Table(f"Test accuracy after {rounds} rounds, {steps}.", ("", *results), rows)


def _claims(results: Results, steps: str) -> Iterator[Claim]:
    """All methods are level on i.i.d. data, and FedAvg falls behind on other data."""
    spread = _spread(results["i.i.d."], METHODS)
    yield Claim(
        f"i.i.d.: all methods reach the same accuracy ({steps})",
        f"largest difference {100 * spread:.1f} points",
        spread <= SAME_ACCURACY,
    )
    for shown, points in (("Dir(0.1)", 2), ("Dir(0.01)", 10)):
        found = results[shown]
        diverged = [method for method in CORRECTED if found[method].diverged]
        others = [found[method].accuracy for method in CORRECTED if method not in diverged]
        # Where none of them is left, FedAvg is behind none.
        behind = (statistics.fmean(others) if others else 0.0) - found["FedAvg"].accuracy
        noise = _noise(found, (*CORRECTED, "FedAvg"))
        ending = f"; {', '.join(diverged)} diverged" if diverged else ""
        yield Claim(
            f"{shown}: FedAvg falls behind the others, by about {points} points ({steps})",
            f"{100 * behind:.1f} points behind their mean; one curve varies by "
            f"{100 * noise:.1f}{ending}",
            behind > max(SAME_ACCURACY, noise),
        )


def _level(equal: Results) -> Claim:
    """The methods with control variables are level on all data."""
    found = {
        shown: (_spread(by_method, CORRECTED), _noise(by_method, CORRECTED))
        for shown, by_method in equal.items()
    }
    measured = ", ".join(
        f"{100 * spread:.1f} points ({shown}; one curve varies by {100 * noise:.1f})"
        for shown, (spread, noise) in found.items()
    )
    return Claim(
        "FedCanon, SCAFFOLD and SCAFFNEW stay level under heterogeneity (equal steps)",
        f"largest difference among them: {measured}",
        all(spread <= max(SAME_ACCURACY, noise) for spread, noise in found.values()),
    )


def _spread(found: Mapping[str, Trained], methods: Sequence[str]) -> float:
    """The largest difference of their accuracies."""
    accuracies = [found[method].accuracy for method in methods]
    return max(accuracies) - min(accuracies)


def _noise(found: Mapping[str, Trained], methods: Sequence[str]) -> float:
    """How much a curve varies at its end."""
    return max(found[method].fluctuation for method in methods)
