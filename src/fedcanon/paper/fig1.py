"""Figure 1: FedCanon under several server steps α and local steps β.

A9A spread evenly over ten clients, a linear model, MCP. Training loss and ‖G‖ for several α at
β = 0.02, and for several β at α = 0.05; the same for FedCanon+.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

from fedcanon.paper.curves import Panel, draw
from fedcanon.paper.outcome import Claim, Outcome, Table, judged
from fedcanon.paper.scales import Scale
from fedcanon.paper.trials import Trainer
from fedcanon.runs import Record
from fedcanon.runs.config import Config, make_config
from fedcanon.runs.named import make_dataset

ALPHA, BETA = 0.05, 0.02
METHODS = {"FedCanon": "fedcanon", "FedCanon+": "fedcanon+"}


@dataclass(frozen=True)
class Setting:
    """``alphas`` are run at β = 0.02, ``betas`` at α = 0.05."""

    alphas: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2, 0.5)
    betas: tuple[float, ...] = (0.005, 0.01, 0.02, 0.05, 0.1)
    rounds: int = 200
    every: int = 2
    clients: int = 10
    local_steps: int = 10
    batch_size: int = 128
    kappa: float = 1e-3
    seed: int = 0


SETTINGS = {
    Scale.smoke: Setting((0.02, 0.1), (0.01, 0.04), rounds=20, every=5),
    Scale.laptop: Setting(),
    Scale.paper: Setting(),
}

Histories = dict[float, list[Record]]


def run(scale: Scale, trainer: Trainer) -> Iterator[Outcome]:
    """Train every combination and draw the four panels for each method."""
    setting = SETTINGS[scale]
    dataset = make_dataset({"name": "a9a"})
    alphas: dict[str, Histories] = {}
    betas: dict[str, Histories] = {}

    def history(method: str, alpha: float, beta: float) -> list[Record]:
        label = f"{method}, α = {alpha:g}, β = {beta:g}"
        config = _config(setting, METHODS[method], alpha, beta)
        return trainer.train(label, config, dataset).records

    for method in METHODS:
        alphas[method] = {alpha: history(method, alpha, BETA) for alpha in setting.alphas}
        betas[method] = {beta: history(method, ALPHA, beta) for beta in setting.betas}
    yield Outcome(
        item="fig1",
        title="Figure 1 · step sizes of FedCanon on A9A, linear model, MCP",
        scale=scale,
        settings=asdict(setting),
        tables=[_table(alphas, betas)],
        claims=judged(scale, _claims(alphas["FedCanon"], betas["FedCanon"])),
        data={
            "loss and ‖G‖ by α": {m: _numbers(h) for m, h in alphas.items()},
            "loss and ‖G‖ by β": {m: _numbers(h) for m, h in betas.items()},
        },
        notes=[
            "the paper gives neither K, batch, κ nor the number of rounds: "
            f"K = {setting.local_steps}, B = {setting.batch_size}, κ = {setting.kappa:g} and "
            f"T = {setting.rounds} are ours."
        ],
        figure=draw(
            [
                panel
                for method in METHODS
                for panel in (
                    *_panels(alphas[method], "α", f"{method}, β = {BETA:g}"),
                    *_panels(betas[method], "β", f"{method}, α = {ALPHA:g}"),
                )
            ],
            rows=len(METHODS),
            common_legend=False,
        ),
    )


def _config(setting: Setting, method: str, alpha: float, beta: float) -> Config:
    return make_config(
        None,
        {
            "seed": setting.seed,
            "rounds": setting.rounds,
            "batch_size": setting.batch_size,
            "data": {"name": "a9a", "partition": "iid"},
            "clients": {"count": setting.clients},
            "model": "linear",
            "penalty": {"name": "mcp", "kappa": setting.kappa},
            "algorithm": {
                "name": method,
                "alpha": alpha,
                "beta": beta,
                "local_steps": setting.local_steps,
            },
            "evaluate": {"every": setting.every, "gradient": True},
        },
    )


def _norm(record: Record) -> float:
    assert record.gradient_norm is not None  # every run asks for it
    return record.gradient_norm


def _panels(histories: Histories, symbol: str, fixed: str) -> list[Panel]:
    rounds = {step: [r.round for r in records] for step, records in histories.items()}
    losses = {step: [r.loss for r in records] for step, records in histories.items()}
    norms = {step: [_norm(r) for r in records] for step, records in histories.items()}

    def labelled(values: dict[float, list[float]]) -> dict[str, tuple[list[int], list[float]]]:
        return {f"{symbol} = {step:g}": (rounds[step], values[step]) for step in histories}

    return [
        Panel(fixed, "round", "training loss f", labelled(losses)),
        Panel(fixed, "round", "proximal gradient ‖G‖", labelled(norms), logarithmic=True),
    ]


def _numbers(histories: Histories) -> dict[str, list[tuple[int, float, float]]]:
    return {
        f"{step:g}": [(r.round, r.loss, _norm(r)) for r in records]
        for step, records in histories.items()
    }


def _table(alphas: dict[str, Histories], betas: dict[str, Histories]) -> Table:
    rows = []
    for histories, steps in ((alphas, "α = {:g}, β = 0.02"), (betas, "α = 0.05, β = {:g}")):
        for step in histories["FedCanon"]:
            ends = [histories[method][step][-1] for method in METHODS]
            cells = [f"{value:.4g}" for end in ends for value in (end.loss, _norm(end))]
            rows.append((steps.format(step), *cells))
    head = ("steps", *(f"{method} {what}" for method in METHODS for what in ("f", "‖G‖")))
    return Table("Training loss and ‖G‖ after the last round.", head, rows)


def _claims(alphas: Histories, betas: Histories) -> list[Claim]:
    by_alpha = [records[-1].loss for records in alphas.values()]
    faster = all(
        later < earlier for ends in (by_alpha, _final(alphas)) for earlier, later in pairwise(ends)
    )
    start = next(iter(betas.values()))[0].loss
    by_beta = [records[-1].loss for records in betas.values()]
    spread, decrease = max(by_beta) - min(by_beta), start - min(by_beta)
    norms = max(_final(betas)) / min(_final(betas)) - 1
    return [
        Claim(
            "a larger α, at fixed β, makes training loss and ‖G‖ fall faster",
            f"final loss from {by_alpha[0]:.4f} (α = {min(alphas):g}) to {by_alpha[-1]:.4f} "
            f"(α = {max(alphas):g}), final ‖G‖ from {_final(alphas)[0]:.2g} to "
            f"{_final(alphas)[-1]:.2g}: {'' if faster else 'not '}lower with every larger α",
            faster,
        ),
        Claim(
            "changing β at fixed α hardly matters",
            f"β from {min(betas):g} to {max(betas):g} changes the final loss by {spread:.1e}, "
            f"{spread / decrease:.1%} of its decrease, and the final ‖G‖ by {norms:.1%}",
            spread <= 0.05 * decrease and norms <= 0.1,
        ),
    ]


def _final(histories: Histories) -> Sequence[float]:
    return [_norm(records[-1]) for records in histories.values()]
