"""Table I: what a prox costs beside a forward and backward pass.

ResNet-18 to ResNet-101 on MNIST, ℓ1, MCP and SCAD. The prox is timed as it is often written, with
boolean masks, and as the penalties here do it, in one pass. All take turns on one thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial

import torch
from matplotlib.figure import Figure
from torch import nn

from fedcanon.objectives.flat import FlatModule
from fedcanon.objectives.models import MODELS
from fedcanon.paper.curves import Panel, draw
from fedcanon.paper.masks import MaskedL1, MaskedMCP, MaskedSCAD
from fedcanon.paper.outcome import Claim, Outcome, Scale, Table, judged
from fedcanon.paper.trials import Trainer
from fedcanon.paper.turns import Work, median_seconds
from fedcanon.penalties import L1, MCP, SCAD, Penalty
from fedcanon.runs.named import make_dataset

STEP, KAPPA = 0.1, 1e-2
PENALTIES: dict[str, dict[str, Penalty]] = {
    "ours": {"ℓ1": L1(KAPPA), "MCP": MCP(KAPPA), "SCAD": SCAD(KAPPA)},
    "masks": {"ℓ1": MaskedL1(KAPPA), "MCP": MaskedMCP(KAPPA), "SCAD": MaskedSCAD(KAPPA)},
}
"""With a prox in one pass, and with one of boolean masks."""
PAPER = {
    "ResNet-18": (86.6, 119.8, 222.4, 387.4),
    "ResNet-34": (159.1, 226.8, 371.9, 751.9),
    "ResNet-50": (302.5, 248.3, 401.8, 836.2),
    "ResNet-101": (561.3, 430.0, 718.7, 1589.1),
}
"""Milliseconds that the paper prints: forward and backward, then ℓ1, MCP and SCAD."""


@dataclass(frozen=True)
class Timing:
    """What is timed, and how often; the paper does not say which batch or device it timed."""

    models: tuple[str, ...] = tuple(PAPER)
    batch_size: int = 32
    turns: int = 7


SETTINGS = {
    Scale.smoke: Timing(("ResNet-18",), batch_size=8, turns=2),
    Scale.laptop: Timing(),
    Scale.paper: Timing(turns=15),
}


@dataclass(frozen=True)
class Times:
    """Seconds of one model: a forward and backward pass, and each prox in both forms."""

    parameters: int
    forward_backward: float
    ours: dict[str, float]
    masks: dict[str, float]

    def over_pass(self, form: str) -> dict[str, float]:
        """The time of each prox over that of a pass."""
        seconds: dict[str, float] = getattr(self, form)
        return {name: own / self.forward_backward for name, own in seconds.items()}


def run(scale: Scale, trainer: Trainer) -> Iterator[Outcome]:
    """Time every model."""
    timing = SETTINGS[scale]
    found = {model: _times(model, timing, trainer) for model in timing.models}
    yield Outcome(
        title="Table I · prox beside forward and backward on MNIST, milliseconds on one thread",
        scale=scale,
        settings={**asdict(timing), "step": STEP, "kappa": KAPPA},
        tables=[
            _table("The prox with boolean masks, as it is often written", found, "masks"),
            _table("The prox of this package, in place and in one pass", found, "ours"),
        ],
        claims=judged(scale, _claims(found)),
        data={model: asdict(times) for model, times in found.items()},
        notes=["medians of contenders that take turns; the paper does not name batch or device."],
        figure=_figure(found),
    )


def _times(model: str, timing: Timing, trainer: Trainer) -> Times:
    dataset = make_dataset({"name": "mnist"})
    inputs, targets = dataset.train.tensors(torch.float32, torch.device("cpu"))
    inputs, targets = inputs[: timing.batch_size], targets[: timing.batch_size]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = MODELS[model.lower().replace("-", "")]()
        flat = FlatModule(network.build(dataset.shape, dataset.classes))
    loss, x = nn.CrossEntropyLoss(), flat.vector.clone()
    contenders: dict[str, Work] = {
        "pass": lambda: flat.gradients(loss(flat.module(inputs), targets))
    }
    for form, penalties in PENALTIES.items():
        for name, penalty in penalties.items():
            contenders[f"{form} {name}"] = partial(penalty.prox_, x, STEP)
    seconds = median_seconds(
        trainer.watch, model, contenders, timing.turns, prepare=lambda: x.copy_(flat.vector)
    )
    ours, masks = (
        {name: seconds[f"{form} {name}"] for name in penalties}
        for form, penalties in PENALTIES.items()
    )
    return Times(len(x), seconds["pass"], ours, masks)


def _table(caption: str, found: dict[str, Times], form: str) -> Table:
    rows: list[tuple[str, ...]] = []
    for model, times in found.items():
        ratios, base = times.over_pass(form), times.forward_backward
        cells = [f"{1e3 * ratio * base:.1f} ({ratio:.3g}×)" for ratio in ratios.values()]
        rows.append((model, f"{times.parameters / 1e6:.1f} M", f"{1e3 * base:.1f}", *cells))
        base, *proxes = PAPER[model]
        paper = [f"{prox} ({prox / base:.2f}×)" for prox in proxes]
        rows.append(("  the paper", "", f"{base}", *paper))
    head = ("", "size", "fwd & bwd", *PENALTIES[form])
    return Table(f"{caption}; in brackets over forward and backward.", head, rows)


def _claims(found: dict[str, Times]) -> list[Claim]:
    def ratios(form: str) -> list[float]:
        return [ratio for times in found.values() for ratio in times.over_pass(form).values()]

    masks, ours = ratios("masks"), ratios("ours")
    paper = [prox / base for base, *several in PAPER.values() for prox in several]
    claim = (
        "a prox is as costly as a forward and backward pass or more, "
        f"{min(paper):.2f} to {max(paper):.2f} times"
    )
    return [
        Claim(
            f"{claim} (a prox of boolean masks)",
            f"{min(masks):.2f} to {max(masks):.2f} times",
            min(masks) >= min(paper),
        ),
        Claim(
            f"{claim} (a prox in one pass)",
            f"{min(ours):.4f} to {max(ours):.4f} times: the cost is that of the code, not of the "
            "prox",
            min(ours) >= min(paper),
        ),
    ]


def _figure(found: dict[str, Times]) -> Figure:
    """A prox over forward and backward against the size of the model."""
    sizes = [times.parameters / 1e6 for times in found.values()]
    panels = []
    for place, name in enumerate(PENALTIES["ours"], start=1):
        forms = {"boolean masks": "masks", "one pass": "ours"}
        curves = {
            label: (sizes, [times.over_pass(form)[name] for times in found.values()])
            for label, form in forms.items()
        }
        curves["the paper"] = (sizes, [PAPER[model][place] / PAPER[model][0] for model in found])
        label = "prox over forward and backward"
        panels.append(Panel(name, "million parameters", label, curves, logarithmic=True))
    return draw(panels, common_y=True)
