"""The default run with each compressor: what it reaches, and for how many bytes."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import Any

from comparison.journal import Journal, Outcome
from comparison.tables import table
from rich.progress import Progress

from method_parts.default_run import command, megabytes, outcomes

SETTINGS = ("evaluate.every=2",)
TARGET = 0.5
"""The f + h to which bytes are counted."""
SPECS = {
    "none": "fedcanon+",
    "none, `accelerated = false`": "fedcanon+:accelerated=false",
    "`quantise`, `bits = 8`": "fedcanon+:compression.name=quantise,compression.bits=8",
    "`random_k`, `fraction = 0.2`": "fedcanon+:compression.name=random_k,compression.fraction=0.2",
    "`quantise`": "fedcanon+:compression.name=quantise",
    "`top_k`": "fedcanon+:compression.name=top_k",
    "`quantise`, `bits = 2`": "fedcanon+:compression.name=quantise,compression.bits=2",
    "`random_k`": "fedcanon+:compression.name=random_k",
    "`sign`": "fedcanon+:compression.name=sign",
    "`top_k`, `fraction = 0.01`": "fedcanon+:compression.name=top_k,compression.fraction=0.01",
}
FEW = ("clients.participants=3", "evaluate.every=10")
SEEDS = (0, 1, 2, 3, 4)
"""With few clients in a round the last model depends on who they were, so one run says little."""
FEW_SPECS = {
    name: SPECS[name] for name in ("none", "`top_k`", "`quantise`", "`random_k`", "`sign`")
}


def measure(journal: Journal, progress: Progress, *, smoke: bool) -> Any:
    """All clients in every round, and three of ten with several seeds."""
    every = outcomes(journal, progress, SPECS, SETTINGS, smoke=smoke)
    by_seed = [
        outcomes(journal, progress, FEW_SPECS, (*FEW, f"seed={seed}"), smoke=smoke)
        for seed in SEEDS
    ]
    few = {label: [found[label] for found in by_seed] for label in by_seed[0]}
    return {"all": every, "3 of 10": few}


def until(one: Outcome, target: float = TARGET) -> tuple[int, int] | None:
    """The bytes up and down until f + h was at most the target; None if it never was."""
    course = one["course"]
    for value, up, down in zip(
        course["objective"], course["bytes_up"], course["bytes_down"], strict=True
    ):
        if value <= target:
            return up, down
    return None


def tables(found: Any) -> Iterator[tuple[str, str]]:
    """The command and the table of the page on compression."""
    reached = f"f + h ≤ {TARGET:g}"
    header = (
        "`[compression]`",
        "f + h",
        "accuracy",
        "zeros",
        "uploaded",
        f"uploaded until {reached}",
        "both ways until then",
    )
    rows = []
    for label, one in found["all"].items():
        sent = until(one)
        rows.append(
            (
                label,
                f"{one['objective']:.4f}",
                f"{one['accuracy']:.4f}",
                f"{one['zeros']:.1%}".replace("%", " %"),
                megabytes(one["up"]),
                *(("–", "–") if sent is None else (megabytes(sent[0]), megabytes(sum(sent)))),
            )
        )
    yield "compression", command(list(SPECS.values()), SETTINGS) + table(header, rows)


def sentences(found: Any) -> Iterator[tuple[str, str]]:
    """What pages say of these runs."""
    every = found["all"]
    few = {label: [one["accuracy"] for one in runs] for label, runs in found["3 of 10"].items()}
    means = {label: f"{fmean(accuracies):.3f}" for label, accuracies in few.items()}
    yield (
        "../how-to/compress-uploads",
        f"mean accuracy of {len(SEEDS)} seeds {means.pop('none')} without compression "
        "(accelerated, which compressed runs are not), "
        + ", ".join(f"{mean} with {label}" for label, mean in means.items()),
    )
    yield (
        "../tutorial",
        f"with {len(SEEDS)} seeds its test accuracy was {min(few['none']):.2f} to "
        f"{max(few['none']):.2f}",
    )
    yield (
        "../how-to/compress-uploads",
        f"Downloads stay at {megabytes(every['`top_k`']['down'])}",
    )
    yield (
        "fedcanon-plus",
        f"from {megabytes(every['none']['up'])} to {megabytes(every['`top_k`']['up'])} with "
        f"`top_k` and {megabytes(every['`top_k`, `fraction = 0.01`']['up'])} with "
        "`fraction = 0.01`",
    )
