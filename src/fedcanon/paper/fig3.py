"""Figure 3: test accuracy against training time of the methods for f + h.

Fashion-MNIST, a CNN, SCAD, ten clients, K = 40; i.i.d., Dir(1) and Dir(0.2). The seconds of a curve
are its rounds times the median round, for which all methods take turns: times of trainings that ran
one after the other on a busy machine could not be compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from fedcanon.data import Dataset
from fedcanon.paper.curves import Panel, draw
from fedcanon.paper.methods import DAMPED, TIMED_BASELINES
from fedcanon.paper.networks import SCAD, FashionLengths
from fedcanon.paper.outcome import Claim, Finding, Outcome, Scale, Table, judged
from fedcanon.paper.trials import Trainer, portion
from fedcanon.paper.tuning import Curve, Results, Shape, Trained, Tuner, of_each
from fedcanon.paper.turns import SAME_TIME, median_seconds, over_fedcanon
from fedcanon.paper.verdicts import RULES, best_known, budget, claim, to_nearest
from fedcanon.runs.build import assemble, build_problem
from fedcanon.runs.config import changed
from fedcanon.runs.named import make_dataset

METHODS = ("FedCanon", "FedCanon+", DAMPED, *TIMED_BASELINES)
PARTITIONS = {"i.i.d.": "iid", "Dir(1)": "dirichlet:1", "Dir(0.2)": "dirichlet:0.2"}


@dataclass(frozen=True)
class TimedLengths(FashionLengths):
    """Trainings whose rounds are timed.

    N = 10, K = 40 and T = 200 are the paper's; it gives neither batch nor steps nor κ.
    """

    every: int | None = 5
    local_steps: int = 40
    partitions: tuple[str, ...] = tuple(PARTITIONS)
    turns: int = 5


SETTINGS = {
    Scale.smoke: TimedLengths(
        rounds=2,
        every=2,
        clients=3,
        local_steps=1,
        batch_size=4,
        betas=(0.05,),
        samples=(60, 40),
        turns=1,
        last=1,
        seeds=(0,),
    ),
    Scale.laptop: TimedLengths(
        rounds=20,
        every=4,
        local_steps=20,
        batch_size=8,
        betas=(0.03, 0.1),
        tuning_rounds=8,
        samples=(8000, 2000),
        partitions=("i.i.d.", "Dir(0.2)"),
        turns=3,
        last=2,
    ),
    Scale.paper: TimedLengths(),
}

Seconds = Mapping[str, float]
"""The seconds of a round, by method."""


def run(scale: Scale, trainer: Trainer) -> Iterator[Outcome]:
    """Tune β and train on every partition, and time a round of each method."""
    lengths = SETTINGS[scale]
    dataset = portion(make_dataset({"name": "fashion_mnist"}), *lengths.samples)
    tuner = Tuner(trainer, dataset, lengths.tuning_rounds, lengths.seeds, lengths.last)
    results: dict[Shape, dict[str, dict[str, Trained]]] = {shape: {} for shape in Shape}
    for shown in lengths.partitions:
        configs = lengths.configs(METHODS, PARTITIONS[shown], "cnn", SCAD)
        for shape, found in results.items():
            found[shown] = tuner.train_all(shown, configs, lengths.betas, shape)
    seconds, best = _seconds(lengths, trainer, dataset), best_known(results)
    subset = f" · {dataset.note}" if dataset.note else ""
    yield Outcome(
        title=f"Figure 3 · accuracy against seconds on Fashion-MNIST, CNN, SCAD{subset}",
        scale=scale,
        settings={
            **asdict(lengths),
            "penalty": SCAD,
            "grids": {s: of_each(found, lambda one: one.grid) for s, found in results.items()},
        },
        tables=[_table(lengths.rounds, results[shape], shape, seconds) for shape in Shape],
        claims=judged(
            scale,
            [_accuracy(results[Shape.constant], best), _time(seconds)],
        ),
        data={
            "seconds of a round": seconds,
            **{f"{s} steps": of_each(found, Trained.told) for s, found in results.items()},
            "best known": of_each(best, lambda one: one.shape),
        },
        notes=[
            budget(len(lengths.betas), lengths.tuning_rounds, lengths.seeds, "partition"),
            *RULES,
            "FedMiD is the published form; FedCanon and FedCanon+ have α = βK.",
            f"accuracies are means over the last {lengths.last} measurements.",
            "rounds are timed with a prox in one pass; Table V has the times with boolean masks.",
        ],
        figure=draw(
            [
                _panel(f"{shown}, {shape}", found[shown], seconds)
                for shape, found in results.items()
                for shown in lengths.partitions
            ],
            columns=len(lengths.partitions),
        ),
    )


def _seconds(lengths: TimedLengths, trainer: Trainer, dataset: Dataset) -> dict[str, float]:
    """The median round of every method, in one process and by turns."""
    configs = lengths.configs(METHODS, "iid", "cnn", SCAD)
    problem = build_problem(configs["FedCanon"], dataset)
    # Clients of one contender must not run beside another; with a small step none diverges.
    alone = {"engine.name": "serial", "algorithm.beta": min(lengths.betas)}
    rounds = {m: assemble(changed(config, alone), problem).step for m, config in configs.items()}
    return median_seconds(trainer.watch, "rounds by turns", rounds, lengths.turns)


def _panel(title: str, found: Mapping[str, Trained], seconds: Seconds) -> Panel:
    curves = {}
    for method, trained in found.items():
        rounds, means, deviations = trained.curve
        curves[method] = Curve([t * seconds[method] for t in rounds], means, deviations)
    return Panel(title, "seconds of training", "test accuracy", curves, after_start=True)


def _table(rounds: int, results: Results, shape: Shape, seconds: Seconds) -> Table:
    rows = []
    for method, ratio in over_fedcanon(seconds).items():
        cells = [found[method].shown for found in results.values()]
        rows.append((method, *cells, f"{seconds[method]:.3g}", f"{ratio:.2f}×"))
    caption = f"Test accuracy after {rounds} rounds, {shape} steps, and seconds of a round."
    return Table(caption, ("", *results, "s/round", "to FedCanon"), rows)


def _accuracy(constant: Results, best: Results) -> Claim:
    def judge(results: Results, ours: str) -> Finding:
        margins = {
            shown: to_nearest(found, ours, TIMED_BASELINES) for shown, found in results.items()
        }
        told = ", ".join(
            f"{margin.shown} to {other} ({shown})" for shown, (other, margin) in margins.items()
        )
        ahead = all(margin.ahead for _, margin in margins.values())
        return Finding(f"points that {ours} is ahead of the best of the others: {told}", ahead)

    return claim("at equal rounds FedCanon reaches the higher test accuracy", judge, constant, best)


def _time(seconds: Seconds) -> Claim:
    ratios = {method: over_fedcanon(seconds)[method] for method in TIMED_BASELINES}
    times = ", ".join(f"{method} {ratio:.2f}×" for method, ratio in ratios.items())
    return Claim(
        "at equal rounds FedCanon needs the least time (K = 40: 5.35 to 9.74 times less)",
        f"a round of the others takes {times} as long with a prox in one pass",
        min(ratios.values()) > SAME_TIME,
    )
