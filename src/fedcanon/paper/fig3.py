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
from fedcanon.paper.methods import TIMED, TIMED_BASELINES
from fedcanon.paper.networks import SCAD, FashionLengths
from fedcanon.paper.outcome import Claim, Outcome, Scale, Table, judged
from fedcanon.paper.trials import SAME_ACCURACY, Trainer, portion
from fedcanon.paper.tuning import Results, Trained, Tuner, of_each
from fedcanon.paper.turns import SAME_TIME, median_seconds, over_fedcanon
from fedcanon.runs.build import assemble, build_problem
from fedcanon.runs.config import changed
from fedcanon.runs.named import make_dataset

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
    last: int = 3
    """Measurements at the end over which the accuracy is averaged."""


SETTINGS = {
    Scale.smoke: TimedLengths(
        rounds=2,
        every=2,
        clients=3,
        local_steps=1,
        batch_size=4,
        betas=(0.05,),
        samples=(200, 100),
        turns=1,
        last=1,
    ),
    Scale.laptop: TimedLengths(
        rounds=20,
        every=2,
        batch_size=8,
        betas=(0.01, 0.03, 0.1),
        tuning_rounds=10,
        samples=(8000, 2000),
        turns=3,
    ),
    Scale.paper: TimedLengths(),
}

Seconds = Mapping[str, float]
"""The seconds of a round, by method."""


def run(scale: Scale, trainer: Trainer) -> Iterator[Outcome]:
    """Tune β and train on every partition, and time a round of each method."""
    lengths = SETTINGS[scale]
    dataset = portion(make_dataset({"name": "fashion_mnist"}), *lengths.samples)
    tuner = Tuner(trainer, dataset, lengths.tuning_rounds, last=lengths.last)
    results = {}
    for shown in lengths.partitions:
        configs = lengths.configs(TIMED, PARTITIONS[shown], "cnn", SCAD)
        results[shown] = tuner.train_all(shown, configs, lengths.betas)
    seconds = _seconds(lengths, trainer, dataset)
    subset = f" · {dataset.note}" if dataset.note else ""
    yield Outcome(
        title=f"Figure 3 · accuracy against seconds on Fashion-MNIST, CNN, SCAD{subset}",
        scale=scale,
        settings={
            **asdict(lengths),
            "penalty": SCAD,
            "grids": of_each(results, lambda trained: trained.grid),
        },
        tables=[_table(lengths.rounds, results, seconds)],
        claims=judged(scale, _claims(lengths.local_steps, results, seconds)),
        data={
            "seconds of a round": seconds,
            "round, loss, accuracy": of_each(results, lambda trained: trained.trainings[0].points),
        },
        notes=[
            "β is chosen by validation for each method and partition; FedMiD is the published "
            "form; FedCanon and FedCanon+ have α = βK.",
            f"accuracies are means over the last {lengths.last} measurements, of one seed.",
            "rounds are timed with a prox in one pass; Table V has the times with boolean masks.",
        ],
        figure=draw([_panel(shown, found, seconds) for shown, found in results.items()]),
    )


def _seconds(lengths: TimedLengths, trainer: Trainer, dataset: Dataset) -> dict[str, float]:
    """The median round of every method, in one process and by turns."""
    configs = lengths.configs(TIMED, "iid", "cnn", SCAD)
    problem = build_problem(configs["FedCanon"], dataset)
    # Clients of one contender must not run beside another; with a small step none diverges.
    alone = {"engine.name": "serial", "algorithm.beta": min(lengths.betas)}
    rounds = {m: assemble(changed(config, alone), problem).step for m, config in configs.items()}
    return median_seconds(trainer.watch, "rounds by turns", rounds, lengths.turns)


def _panel(shown: str, found: Mapping[str, Trained], seconds: Seconds) -> Panel:
    curves = {}
    for method, trained in found.items():
        rounds, accuracies = trained.curve
        curves[method] = ([t * seconds[method] for t in rounds], accuracies)
    return Panel(shown, "seconds of training", "test accuracy", curves, after_start=True)


def _table(rounds: int, results: Results, seconds: Seconds) -> Table:
    rows = []
    for method, ratio in over_fedcanon(seconds).items():
        cells = [found[method].shown for found in results.values()]
        rows.append((method, *cells, f"{seconds[method]:.3g}", f"{ratio:.2f}×"))
    caption = f"Test accuracy after {rounds} rounds, and seconds of a round."
    return Table(caption, ("", *results, "s/round", "to FedCanon"), rows)


def _claims(local_steps: int, results: Results, seconds: Seconds) -> list[Claim]:
    ahead = {
        shown: found["FedCanon"].accuracy - max(found[m].accuracy for m in TIMED_BASELINES)
        for shown, found in results.items()
    }
    points = ", ".join(f"{100 * value:+.1f} ({shown})" for shown, value in ahead.items())
    ratios = {method: over_fedcanon(seconds)[method] for method in TIMED_BASELINES}
    times = ", ".join(f"{method} {ratio:.2f}×" for method, ratio in ratios.items())
    return [
        Claim(
            "at equal rounds FedCanon reaches the higher test accuracy",
            f"points ahead of the best of FedMiD, FedDA and ZA1, each with its own β: {points}",
            all(value > SAME_ACCURACY for value in ahead.values()),
        ),
        Claim(
            f"at equal rounds FedCanon needs the least time (K = {local_steps}: 5.35 to 9.74 times "
            "less)",
            f"a round of the others takes {times} as long with a prox in one pass",
            min(ratios.values()) > SAME_TIME,
        ),
    ]
