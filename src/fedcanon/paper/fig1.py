"""Figure 1: FedCanon under several server steps α and local steps β.

A9A spread evenly over ten clients, a linear model, MCP. Training loss and ‖G‖ for several α at
β = 0.02, and for several β at α = 0.05; the same for FedCanon+.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from fedcanon.errors import FedcanonError
from fedcanon.paper.curves import Panel, draw
from fedcanon.paper.methods import as_published
from fedcanon.paper.networks import Lengths
from fedcanon.paper.outcome import Claim, Outcome, Scale, Table, judged
from fedcanon.paper.trials import Trainer
from fedcanon.runs import Record
from fedcanon.runs.named import make_dataset

ALPHA, BETA, KAPPA = 0.05, 0.02, 1e-3
METHODS = ("FedCanon", "FedCanon+")


@dataclass(frozen=True)
class Sweep:
    """The steps that are tried: ``alphas`` at β = 0.02, ``betas`` at α = 0.05."""

    alphas: tuple[float, ...]
    betas: tuple[float, ...]
    lengths: Lengths


FULL = Sweep(
    (0.02, 0.05, 0.1, 0.2, 0.5),
    (0.005, 0.01, 0.02, 0.05, 0.1),
    Lengths(every=2, local_steps=10, batch_size=128),
)
SETTINGS = {
    Scale.smoke: Sweep((0.02, 0.1), (0.01, 0.04), replace(FULL.lengths, rounds=20, every=5)),
    Scale.laptop: FULL,
    Scale.paper: FULL,
}


class Point(NamedTuple):
    """Training loss and ‖G‖ after a round."""

    round: int
    loss: float
    norm: float

    @classmethod
    def of(cls, record: Record) -> Point:
        """What a record says of a round."""
        assert record.gradient_norm is not None  # every run asks for it
        return cls(record.round, record.loss, record.gradient_norm)


Curves = dict[str, list[Point]]
"""The course of trainings, by the step that varies as text."""
Found = dict[str, dict[str, Curves]]
"""All courses, by the sign of the step that varies (α or β) and by method."""


def run(scale: Scale, trainer: Trainer) -> Iterator[Outcome]:
    """Train every combination and draw the four panels for each method."""
    sweep = SETTINGS[scale]
    lengths, dataset = sweep.lengths, make_dataset({"name": "a9a"})

    def curve(method: str, alpha: float, beta: float) -> list[Point]:
        steps = {**as_published(method), "alpha": alpha, "beta": beta}
        penalty = {"name": "mcp", "kappa": KAPPA}
        config = lengths.config("a9a", "iid", "linear", penalty, steps, gradient=True)
        label = f"{method}, α = {alpha:g}, β = {beta:g}"
        training = trainer.train(label, config, dataset)
        if training.diverged:  # no step of the paper does, and there would be no last round to show
            raise FedcanonError(
                f"Figure 1 needs all its trainings, but of {label}: {training.diverged}"
            )
        return [Point.of(record) for record in training.records]

    found: Found = {
        "α": {m: {f"{alpha:g}": curve(m, alpha, BETA) for alpha in sweep.alphas} for m in METHODS},
        "β": {m: {f"{beta:g}": curve(m, ALPHA, beta) for beta in sweep.betas} for m in METHODS},
    }
    steps = {"alphas": sweep.alphas, "betas": sweep.betas}
    yield Outcome(
        title="Figure 1 · step sizes of FedCanon on A9A, linear model, MCP",
        scale=scale,
        settings={**steps, **asdict(lengths), "kappa": KAPPA, "seed": 0},
        tables=[_table(found)],
        claims=judged(scale, _claims(found["α"]["FedCanon"], found["β"]["FedCanon"])),
        data={f"loss and ‖G‖ by {sign}": by_method for sign, by_method in found.items()},
        notes=[
            "the paper gives neither K, batch, κ nor the number of rounds: "
            f"K = {lengths.local_steps}, B = {lengths.batch_size}, κ = {KAPPA:g} and "
            f"T = {lengths.rounds} are ours."
        ],
        figure=draw(_panels(found), columns=4, common_legend=False),
    )


def _panels(found: Found) -> list[Panel]:
    fixed = {"α": f"β = {BETA:g}", "β": f"α = {ALPHA:g}"}
    panels = []
    for method in METHODS:
        for sign, by_method in found.items():
            losses, norms = {}, {}
            for step, curve in by_method[method].items():
                rounds, loss, norm = zip(*curve, strict=True)
                losses[f"{sign} = {step}"] = (rounds, loss)
                norms[f"{sign} = {step}"] = (rounds, norm)
            title = f"{method}, {fixed[sign]}"
            panels += [
                Panel(title, "round", "training loss f", losses),
                Panel(title, "round", "proximal gradient ‖G‖", norms, logarithmic=True),
            ]
    return panels


def _table(found: Found) -> Table:
    rows = []
    for sign, steps in (("α", f"α = {{}}, β = {BETA:g}"), ("β", f"α = {ALPHA:g}, β = {{}}")):
        for step in found[sign]["FedCanon"]:
            ends = [found[sign][method][step][-1] for method in METHODS]
            cells = [f"{value:.4g}" for end in ends for value in (end.loss, end.norm)]
            rows.append((steps.format(step), *cells))
    head = ("steps", *(f"{method} {what}" for method in METHODS for what in ("f", "‖G‖")))
    return Table("Training loss and ‖G‖ after the last round.", head, rows)


def _claims(alphas: Curves, betas: Curves) -> list[Claim]:
    by_alpha, by_beta = ([curve[-1] for curve in curves.values()] for curves in (alphas, betas))
    faster = all(
        later.loss < earlier.loss and later.norm < earlier.norm
        for earlier, later in pairwise(by_alpha)
    )
    losses, norms = [end.loss for end in by_beta], [end.norm for end in by_beta]
    start = next(iter(betas.values()))[0].loss
    spread, decrease = max(losses) - min(losses), start - min(losses)
    norm_spread = max(norms) / min(norms) - 1
    return [
        Claim(
            "a larger α, at fixed β, makes training loss and ‖G‖ fall faster",
            f"final loss from {by_alpha[0].loss:.4f} (α = {min(alphas, key=float)}) to "
            f"{by_alpha[-1].loss:.4f} (α = {max(alphas, key=float)}), final ‖G‖ from "
            f"{by_alpha[0].norm:.2g} to {by_alpha[-1].norm:.2g}: "
            f"{'' if faster else 'not '}lower with every larger α",
            faster,
        ),
        Claim(
            "changing β at fixed α hardly matters",
            f"β from {min(betas, key=float)} to {max(betas, key=float)} changes the final loss by "
            f"{spread:.1e}, {spread / decrease:.1%} of its decrease, and the final ‖G‖ by "
            f"{norm_spread:.1%}",
            spread <= 0.05 * decrease and norm_spread <= 0.1,
        ),
    ]
