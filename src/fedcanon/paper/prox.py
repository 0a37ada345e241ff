"""Table I: what a prox costs beside a forward and backward pass.

ResNet-18 to ResNet-101 on MNIST, ℓ1, MCP and SCAD. The prox is timed as it is often written, with
boolean masks, and as the penalties here do it, in one pass. All take turns on one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial

import torch
from matplotlib.figure import Figure
from torch import nn

from fedcanon.objectives.flat import FlatModule
from fedcanon.objectives.models import MODELS
from fedcanon.paper.curves import Panel, draw
from fedcanon.paper.masks import MaskedL1, MaskedMCP, MaskedSCAD
from fedcanon.paper.outcome import Claim, Outcome, Table, judged
from fedcanon.paper.scales import Scale
from fedcanon.paper.trials import Trainer
from fedcanon.paper.turns import median_seconds
from fedcanon.penalties import L1, MCP, SCAD, Penalty
from fedcanon.runs.named import make_dataset

STEP, KAPPA = 0.1, 1e-2

OURS: dict[str, Penalty] = {"ℓ1": L1(KAPPA), "MCP": MCP(KAPPA), "SCAD": SCAD(KAPPA)}
MASKS: dict[str, Penalty] = {
    "ℓ1": MaskedL1(KAPPA),
    "MCP": MaskedMCP(KAPPA),
    "SCAD": MaskedSCAD(KAPPA),
}
PAPER = {
    "ResNet-18": (86.6, 119.8, 222.4, 387.4),
    "ResNet-34": (159.1, 226.8, 371.9, 751.9),
    "ResNet-50": (302.5, 248.3, 401.8, 836.2),
    "ResNet-101": (561.3, 430.0, 718.7, 1589.1),
}
"""Milliseconds that the paper prints: forward and backward, then ℓ1, MCP and SCAD."""


@dataclass(frozen=True)
class Setting:
    """The paper does not say which batch or device it timed."""

    models: tuple[str, ...] = tuple(PAPER)
    batch_size: int = 32
    turns: int = 7


SETTINGS = {
    Scale.smoke: Setting(("ResNet-18",), batch_size=8, turns=2),
    Scale.laptop: Setting(),
    Scale.paper: Setting(turns=15),
}


@dataclass(frozen=True)
class Times:
    """Seconds of one model: a pass, and each prox in both forms."""

    parameters: int
    forward_backward: float
    ours: dict[str, float]
    masks: dict[str, float]


def run(scale: Scale, trainer: Trainer) -> Iterator[Outcome]:
    """Time every model."""
    setting = SETTINGS[scale]
    found = {}
    for shown in setting.models:
        total = (setting.turns + 1) * (1 + len(OURS) + len(MASKS))
        with trainer.watch.steps(shown, total) as done:
            found[shown] = _times(shown.lower().replace("-", ""), setting, done)
    yield Outcome(
        item="prox",
        title="Table I · prox beside forward and backward on MNIST, milliseconds on one thread",
        scale=scale,
        settings={**asdict(setting), "step": STEP, "kappa": KAPPA},
        tables=[
            _table("The prox with boolean masks, as it is often written", found, "masks"),
            _table("The prox of this package, in place and in one pass", found, "ours"),
        ],
        claims=judged(scale, _claims(found)),
        data={shown: asdict(times) for shown, times in found.items()},
        notes=["medians of contenders that take turns; the paper does not name batch or device."],
        figure=_figure(found),
    )


def _figure(found: Mapping[str, Times]) -> Figure:
    """A prox over forward and backward against the size of the model."""
    sizes = [times.parameters / 1e6 for times in found.values()]

    def over_pass(name: str, form: str) -> list[float]:
        return [getattr(times, form)[name] / times.forward_backward for times in found.values()]

    return draw(
        [
            Panel(
                name,
                "million parameters",
                "prox over forward and backward",
                {
                    "boolean masks": (sizes, over_pass(name, "masks")),
                    "one pass": (sizes, over_pass(name, "ours")),
                    "the paper": (sizes, [PAPER[m][place] / PAPER[m][0] for m in found]),
                },
                logarithmic=True,
            )
            for place, name in enumerate(OURS, start=1)
        ],
        common_y=True,
    )


def _times(model: str, setting: Setting, done: Callable[[], None]) -> Times:
    dataset = make_dataset({"name": "mnist"})
    inputs, targets = dataset.train.tensors(torch.float32, torch.device("cpu"))
    inputs, targets = inputs[: setting.batch_size], targets[: setting.batch_size]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        flat = FlatModule(MODELS[model]().build(dataset.shape, dataset.classes))
    loss, x = nn.CrossEntropyLoss(), flat.vector.clone()
    contenders: dict[str, Callable[[], object]] = {
        "pass": lambda: flat.gradients(loss(flat.module(inputs), targets))
    }
    for form, penalties in (("ours", OURS), ("masks", MASKS)):
        for name, penalty in penalties.items():
            contenders[f"{form} {name}"] = partial(penalty.prox_, x, STEP)
    seconds = median_seconds(contenders, setting.turns, done, prepare=lambda: x.copy_(flat.vector))
    return Times(
        len(x),
        seconds["pass"],
        {name: seconds[f"ours {name}"] for name in OURS},
        {name: seconds[f"masks {name}"] for name in MASKS},
    )


def _table(caption: str, found: dict[str, Times], form: str) -> Table:
    rows: list[tuple[str, ...]] = []
    for shown, times in found.items():
        cells = [
            f"{1e3 * seconds:.1f} ({seconds / times.forward_backward:.3g}×)"
            for seconds in getattr(times, form).values()
        ]
        size = f"{times.parameters / 1e6:.1f} M"
        rows.append((shown, size, f"{1e3 * times.forward_backward:.1f}", *cells))
        base, *proxes = PAPER[shown]
        paper = [f"{prox} ({prox / base:.2f}×)" for prox in proxes]
        rows.append(("  the paper", "", f"{base}", *paper))
    head = ("", "size", "fwd & bwd", *OURS)
    return Table(f"{caption}; in brackets over forward and backward.", head, rows)


def _claims(found: dict[str, Times]) -> list[Claim]:
    def range_of(form: str) -> tuple[float, float]:
        ratios = [
            seconds / times.forward_backward
            for times in found.values()
            for seconds in getattr(times, form).values()
        ]
        return min(ratios), max(ratios)

    masks, ours = range_of("masks"), range_of("ours")
    claim = "a prox is as costly as a forward and backward pass or more, 0.77 to 4.73 times"
    return [
        Claim(
            f"{claim} (a prox of boolean masks)",
            f"{masks[0]:.2f} to {masks[1]:.2f} times",
            masks[0] >= 0.5,
        ),
        Claim(
            f"{claim} (a prox in one pass)",
            f"{ours[0]:.4f} to {ours[1]:.4f} times: the cost is that of the code, not of the prox",
            ours[0] >= 0.5,
        ),
    ]
