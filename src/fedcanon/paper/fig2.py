"""Figure 2: control variables against heterogeneous data, without a penalty.

Fashion-MNIST, an MLP, ten clients, K = 20; i.i.d., Dir(0.1) and Dir(0.01). The paper gives all
methods the same step; here each is also run with the constant and with the falling step that is
best for it by validation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial

from fedcanon.paper.curves import Panel, draw
from fedcanon.paper.methods import DAMPED
from fedcanon.paper.networks import FashionLengths
from fedcanon.paper.outcome import Claim, Finding, Outcome, Scale, Table, judged
from fedcanon.paper.trials import Trainer, portion
from fedcanon.paper.tuning import Results, Shape, Trained, Tuner, of_each
from fedcanon.paper.verdicts import RULES, Margin, best_known, budget, claim, widest
from fedcanon.runs.named import make_dataset

METHODS = ("FedCanon", "FedCanon+", DAMPED, "SCAFFOLD", "SCAFFNEW", "FedAvg")
EQUAL = ("FedCanon", "SCAFFOLD", "SCAFFNEW", "FedAvg")
"""The methods of the paper, which have the same step there."""
CORRECTED = ("SCAFFOLD", "SCAFFNEW")
"""The methods of the paper that have control variables, beside FedCanon."""
PARTITIONS = {"i.i.d.": "iid", "Dir(0.1)": "dirichlet:0.1", "Dir(0.01)": "dirichlet:0.01"}
BEHIND = {"Dir(0.1)": 2, "Dir(0.01)": 10}
"""By about how many points FedAvg falls behind in the paper."""


@dataclass(frozen=True)
class RepeatedLengths(FashionLengths):
    """Trainings that are repeated for some seeds.

    N = 10, K = 20 and T = 200 are the paper's; it gives neither batch nor step.
    """

    every: int | None = 10
    betas: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2)
    tuning_rounds: int = 30


SETTINGS = {
    Scale.smoke: RepeatedLengths(
        rounds=4,
        every=2,
        local_steps=2,
        betas=(0.05, 0.1),
        tuning_rounds=2,
        samples=(500, 200),
        last=1,
        seeds=(0,),
    ),
    Scale.laptop: RepeatedLengths(rounds=150),
    Scale.paper: RepeatedLengths(tuning_rounds=200),
}


def run(scale: Scale, trainer: Trainer) -> Iterator[Outcome]:
    """Tune every method on every partition, then train with equal steps and with each one's own."""
    lengths = SETTINGS[scale]
    dataset = portion(make_dataset({"name": "fashion_mnist"}), *lengths.samples)
    tuner = Tuner(trainer, dataset, lengths.tuning_rounds, lengths.seeds, lengths.last)
    own: dict[Shape, dict[str, dict[str, Trained]]] = {shape: {} for shape in Shape}
    equal = {}
    for shown, partition in PARTITIONS.items():
        configs = lengths.configs(METHODS, partition, "mlp", {"name": "zero"})
        for shape, results in own.items():
            results[shown] = tuner.train_all(shown, configs, lengths.betas, shape)
        one_step = [own[Shape.constant][shown]["FedCanon"].beta]
        same = {method: configs[method] for method in EQUAL}
        equal[shown] = tuner.train_all(shown, same, one_step, Shape.constant)
    constant, best = own[Shape.constant], best_known(own)
    subset = f" · {dataset.note}" if dataset.note else ""
    yield Outcome(
        title=f"Figure 2 · control variables on Fashion-MNIST, MLP, h = 0{subset}",
        scale=scale,
        settings={
            **asdict(lengths),
            "grids": {shape: of_each(found, lambda one: one.grid) for shape, found in own.items()},
        },
        tables=[
            *(_table(lengths.rounds, own[shape], f"{shape} steps") for shape in Shape),
            _table(lengths.rounds, equal, "all methods with FedCanon's constant β"),
        ],
        claims=judged(scale, [*_claims(constant, best), *_equal_claims(equal)]),
        data={
            **{f"{shape} steps": of_each(found, Trained.told) for shape, found in own.items()},
            "equal steps": of_each(equal, Trained.told),
            "best known": of_each(best, lambda one: one.shape),
        },
        notes=[
            budget(len(lengths.betas), lengths.tuning_rounds, lengths.seeds, "partition"),
            *RULES,
            f"accuracies are means over the last {lengths.last} measurements; SCAFFNEW draws its "
            f"local steps, {lengths.local_steps} on average.",
            "without a penalty and with α = βK, FedCanon, FedCanon+ and SCAFFOLD are one method up "
            "to rounding: their differences show how far chance goes.",
        ],
        figure=draw(
            [_panel(f"{shown}, {s}", own[s][shown]) for s in Shape for shown in PARTITIONS],
            columns=len(PARTITIONS),
        ),
    )


def _panel(title: str, found: dict[str, Trained]) -> Panel:
    curves = {method: trained.curve for method, trained in found.items()}
    return Panel(title, "round", "test accuracy", curves, after_start=True)


def _table(rounds: int, results: Results, steps: str) -> Table:
    methods = next(iter(results.values()))
    rows = [(method, *(found[method].shown for found in results.values())) for method in methods]
    return Table(f"Test accuracy after {rounds} rounds, {steps}.", ("", *results), rows)


def _claims(constant: Results, best: Results) -> Iterator[Claim]:
    """All methods are level on i.i.d. data, and FedAvg falls behind on other data."""
    yield claim(
        "i.i.d.: all methods reach the same accuracy",
        lambda results, ours: _level(results, ["i.i.d."], [ours, *CORRECTED, "FedAvg"]),
        constant,
        best,
    )
    for shown, points in BEHIND.items():
        yield claim(
            f"{shown}: FedAvg falls behind the others, by about {points} points",
            partial(_behind, shown),
            constant,
            best,
        )
    yield claim(
        "FedCanon, SCAFFOLD and SCAFFNEW stay level under heterogeneity",
        lambda results, ours: _level(results, BEHIND, [ours, *CORRECTED]),
        constant,
        best,
    )


def _equal_claims(equal: Results) -> Iterator[Claim]:
    """The same of FedAvg with one step for all, which is how the paper compares them."""
    for shown, points in BEHIND.items():
        found = _behind(shown, equal, "FedCanon")
        yield Claim(
            f"{shown}: FedAvg falls behind, by about {points} points, if all have FedCanon's β",
            found.measured,
            found.agrees,
        )


def _behind(shown: str, results: Results, ours: str) -> Finding:
    """Whether FedAvg is behind each method with control variables."""
    found = results[shown]
    margins = {m: Margin(found[m], found["FedAvg"]) for m in (ours, *CORRECTED)}
    told = ", ".join(f"{method} {margin.shown}" for method, margin in margins.items())
    ahead = all(margin.ahead for margin in margins.values())
    return Finding(f"points ahead of FedAvg: {told}", ahead)


def _level(results: Results, where: Iterable[str], methods: Sequence[str]) -> Finding:
    """Whether these methods are level on some partitions."""
    margins = {shown: widest(results[shown], methods) for shown in where}
    told = ", ".join(f"{margin.shown} ({shown})" for shown, margin in margins.items())
    level = not any(margin.ahead for margin in margins.values())
    return Finding(f"largest difference in points: {told}", level)
