"""Where methods stop on five quadratics, with and without compressors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from comparison.journal import Journal, Outcome
from comparison.tables import table
from rich.progress import Progress

from fedcanon.algorithms import ALGORITHMS, Algorithm
from fedcanon.compression import Clip, Identity, Quantise, Sign, TopK
from method_parts.names import NAMES, short
from method_parts.quadratics import (
    distance,
    end,
    rounds_to,
    with_automatic_steps,
)

Run = dict[str, Any]
OPTIONS = ("rounds", "participants", "compressor", "to")
"""What of a run is no parameter of its method."""
COMPRESSORS = {
    "none": Identity(),
    "`quantise`, 8 bits": Quantise(8),
    "`quantise`": Quantise(),
    "`top_k`, 2 of 10": TopK(0.2),
    "`sign`": Sign(),
    "`clip`, limit 1": Clip(1.0),
}
OTHERS = {
    "FedCanon+, `accelerated = false`": {"name": "fedcanon+", "accelerated": False},
    "Fast-FedDA, `mu = 0.1`": {"name": "fast-fedda", "mu": 0.1},
    "FedExP, `epsilon = 1`": {"name": "fedexp", "epsilon": 1.0},
}
"""Methods with another setting than by default, that have a line of their own."""
SMOKE = ("fedcanon", "fedavg", "pgd")


def several(name: str, key: str, values: tuple[Any, ...], **others: Any) -> list[Run]:
    return [{"name": name, key: value, **others} for value in values]


PARTLY = {"participants": 2}
SAID: tuple[tuple[str, str, list[Run]], ...] = (
    (
        "fedcanon-plus",
        "the distance after 250 rounds is {}, and {} with `accelerated = false`",
        [
            {"name": "fedcanon+", "rounds": 250, **PARTLY},
            {"name": "fedcanon+", "accelerated": False, "rounds": 250, **PARTLY},
        ],
    ),
    (
        "fedavg",
        "with β = 0.1, {} with 0.05. - **Sampled clients** leave a noise floor on top: {} with 2 "
        "of 5. - **Momentum multiplies the steps** by 1/(1 − momentum) in the long run. With 0.9 "
        "the noise floor is {} with η_g = 1, and {} with η_g = 0.1. The limit with all clients is "
        "the same: {}.",
        [
            {"name": "fedavg", "beta": 0.05, "rounds": 400},
            {"name": "fedavg", **PARTLY},
            {"name": "fedavg", "momentum": 0.9, **PARTLY},
            {"name": "fedavg", "momentum": 0.9, "server_step": 0.1, **PARTLY},
            {"name": "fedavg", "momentum": 0.9},
        ],
    ),
    (
        "fedprox",
        "with β = 0.05 it stops at a distance of {}, {}, {}, {} for μ = 0, 0.1, 1, 10",
        several("fedprox", "mu", (0.0, 0.1, 1.0, 10.0), beta=0.05, rounds=400),
    ),
    (
        "fedavg-m",
        "it stops at {} for w = 1, {} for 0.5, {} for 0.1",
        several("fedavg-m", "fresh", (1.0, 0.5, 0.1), beta=0.05, rounds=400),
    ),
    (
        "fedavg-m",
        "leave a noise floor: {} with 2 of 5 and β = 0.1",
        [{"name": "fedavg-m", **PARTLY}],
    ),
    (
        "fedadam",
        "{} with 2 of 5 clients, {} with `server_step = 0.01`",
        [{"name": "fedadam", **PARTLY}, {"name": "fedadam", "server_step": 0.01, **PARTLY}],
    ),
    (
        "fedyogi",
        "at {} with 2 of 5, and at {} with 2 of 5 and `server_step = 0.01`",
        [{"name": "fedyogi", **PARTLY}, {"name": "fedyogi", "server_step": 0.01, **PARTLY}],
    ),
    (
        "fedexp",
        "it is {} away with the default ε, farther than the start; {} with 0.1, {} with 1, {} "
        "with 10, as FedAvg",
        [{"name": "fedexp"}, *several("fedexp", "epsilon", (0.1, 1.0, 10.0))],
    ),
    (
        "fedadmm",
        "it ends at {} with 10 local steps, and at {} with 2 of 5 clients",
        [{"name": "fedadmm"}, {"name": "fedadmm", **PARTLY}],
    ),
    (
        "scaffold",
        "with β = 0.05 it ends at {} with all clients ({} with option I), at {} with 2 of 5",
        [
            {"name": "scaffold", "beta": 0.05, "rounds": 400},
            {"name": "scaffold", "beta": 0.05, "rounds": 400, "option": "I"},
            {"name": "scaffold", "beta": 0.05, "rounds": 400, **PARTLY},
        ],
    ),
    (
        "feddyn",
        "after 1, 10, 20, 40 rounds: `server` {}, {}, {}, {}; `averaged` {}, {}, {}, {}",
        several("feddyn", "rounds", (1, 10, 20, 40), **PARTLY)
        + several("feddyn", "rounds", (1, 10, 20, 40), evaluate="averaged", **PARTLY),
    ),
    (
        "feddr",
        "a distance of 10⁻⁶ takes {}, {}, {} rounds with K = 1, 10, 100, and {}, {}, {} with 2 of "
        "5 clients",
        several("feddr", "local_steps", (1, 10, 100), to=1e-6)
        + several("feddr", "local_steps", (1, 10, 100), to=1e-6, **PARTLY),
    ),
    (
        "feddr",
        "{}, {}, {} rounds with r = 1, 1.5, 1.95",
        several("feddr", "relaxation", (1.0, 1.5, 1.95), to=1e-6),
    ),
    (
        "scaffnew",
        "a distance of 10⁻⁶ takes {}, {}, {}, {}, {} communications with p = 1, 0.5, 0.3, 0.2, 0.1",
        several("scaffnew", "probability", (1.0, 0.5, 0.3, 0.2, 0.1), to=1e-6),
    ),
    (
        "za1",
        "{} instead of {} rounds to a distance of 10⁻⁶ with η_g = 0.5 and β = 0.1",
        several("za1", "server_step", (0.5, 1.0), beta=0.1, to=1e-6),
    ),
)
"""Page, what it says of the quadratics, and the runs whose outcomes are the numbers in it."""


def algorithm_of(run: Run) -> Algorithm:
    """The method with its automatic steps, or, if β is given, as it is in Python."""
    steps = {k: v for k, v in run.items() if k not in ("name", *OPTIONS)}
    kind = ALGORITHMS[run["name"]]
    compressed = run.get("compressor", "none") != "none"
    return kind(**steps) if "beta" in steps else with_automatic_steps(kind, compressed, **steps)


def ended(run: Run) -> Outcome:
    """The last model of a run, or the rounds that it takes to come as near as ``to`` says."""
    options = {key: run[key] for key in OPTIONS if key in run}
    if "to" in options:
        return {"rounds": rounds_to(options.pop("to"), algorithm_of(run), **options)}
    if "compressor" in options:
        options["compressor"] = COMPRESSORS[options["compressor"]]
    return {"end": end(algorithm_of(run), **options).tolist()}


def number(run: Run, outcome: Outcome) -> float:
    """The rounds, or the distance to the minimiser."""
    if "rounds" in outcome:
        return float(outcome["rounds"])
    model = torch.tensor(outcome["end"], dtype=torch.float64)
    return distance(algorithm_of(run), model)


def measure(journal: Journal, progress: Progress, *, smoke: bool) -> Any:
    """All distances, in the order of the tables; few of them for a short look."""
    lines = {NAMES[name]: {"name": name} for name in (SMOKE if smoke else NAMES)}
    lines |= {} if smoke else OTHERS
    sampled = {k: r for k, r in lines.items() if ALGORITHMS[r["name"]].partial_participation}
    altered = {
        k: r for k, r in lines.items() if ALGORITHMS[r["name"]].alterable and k in NAMES.values()
    }
    said = [] if smoke else SAID
    count = len(lines) + len(sampled) + len(altered) * len(COMPRESSORS)
    task = progress.add_task("", total=count + sum(len(runs) for _, _, runs in said))

    def value(run: Run) -> float:
        progress.update(task, description=" ".join(map(str, run.values())))
        run = {**run, "rounds": 3} if smoke else run
        outcome = journal.outcome(run, lambda: ended(run))
        progress.advance(task)
        return number(run, outcome)

    return {
        "all clients": {label: value(run) for label, run in lines.items()},
        "2 of 5 clients": {label: value({**run, **PARTLY}) for label, run in sampled.items()},
        "compressed": {
            label: {name: value({**run, "compressor": name, "rounds": 400}) for name in COMPRESSORS}
            for label, run in altered.items()
        },
        "said": [[page, words, [value(run) for run in runs]] for page, words, runs in said],
    }


def tables(found: Any) -> Iterator[tuple[str, str]]:
    """The tables of the pages, by name."""
    partly = found["2 of 5 clients"]
    yield (
        "stops",
        table(
            ("method", "all clients", "2 of 5 clients"),
            [
                (label, short(end), short(partly[label]) if label in partly else "")
                for label, end in found["all clients"].items()
            ],
        ),
    )
    yield (
        "stops-compressed",
        table(
            ("method", *COMPRESSORS),
            [(label, *map(short, ends.values())) for label, ends in found["compressed"].items()],
        ),
    )


def sentences(found: Any) -> Iterator[tuple[str, str]]:
    """What pages say of these runs: the page and the words."""
    for page, words, numbers in found["said"]:
        whole = "10⁻⁶" in words or "rounds with r" in words
        yield page, words.format(*(f"{n:.0f}" if whole else short(n) for n in numbers))
