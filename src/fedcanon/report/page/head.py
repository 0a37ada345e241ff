"""The head of a page: what was run, and how far it got."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedcanon.objectives import DataSummary
from fedcanon.report.page.groups import Group
from fedcanon.report.page.reading import Run
from fedcanon.report.wording import described, different, duration, written
from fedcanon.runs.config import (
    CLIENTS_OWN,
    DEFAULT_LOSS,
    DEPLOYED,
    AdversarySection,
    Config,
)
from fedcanon.runs.guarantee import in_short

LISTED = 4
"""The largest number of different methods, models, … that the head of a page lists."""
FEATURES = 30
"""The largest number of columns of a table that it lists."""
PACE = 20
"""How many of the last measures tell the speed of a run."""


def title(groups: Sequence[Group]) -> str:
    """The title of a page: its methods and data."""
    runs = [run for group in groups for run in group.runs]
    methods = different(str(run.config.algorithm["name"]) for run in runs)
    data = different(run.config.data.name for run in runs)
    shown = ", ".join(methods) if len(methods) <= LISTED else f"{len(methods)} methods"
    return f"{shown} on {', '.join(data)}"


def facts(groups: Sequence[Group]) -> dict[str, list[str]]:
    """What was run: data, model, penalty, …, with a line for each variant among the runs."""
    found = [facts_of(run.config, run.data) for group in groups for run in group.runs]
    every = {name: different(run[name] for run in found) for name in found[0]}
    lines = {name: own for name, own in every.items() if any(own)}
    return {name: _shortened(own) for name, own in lines.items()} | {
        "seed": [", ".join(lines["seed"])]
    }


def facts_of(config: Config, data: DataSummary | None) -> dict[str, str]:
    """What a run with this configuration does, a line each; ``data`` is None if not yet known."""
    return {
        "data": _data(config, data),
        "features": _features(data),
        "model": model_of(config),
        "penalty": described(config.penalty),
        "method": " · ".join(method_of(config)),
        "privacy": in_short(config) or "none",
        "training": f"{config.rounds:,} rounds · batches of {config.batch_size} · "
        f"{config.precision}",
        "seed": str(config.seed),
    }


def model_of(config: Config) -> str:
    """The model and, if it is not the default one, its loss."""
    model = described(config.model.model_dump())
    return model if config.loss == DEFAULT_LOSS else f"{model}, loss {described(config.loss)}"


def method_of(config: Config) -> list[str]:
    """The algorithm and, if there are any, compressor, robust rule and bad clients."""
    words, compressor = [described(config.algorithm)], described(config.compression)
    if compressor != "none":
        words.append(f"uploads through {compressor}")
    if config.robust is not None and config.robust.byzantine:
        words.append(f"{config.robust.rule} against {_count(config.robust.byzantine)}")
    if config.adversary is not None:
        words.append(_attack(config.adversary))
    return words


def _count(clients: int) -> str:
    return f"{clients} client{'s' if clients > 1 else ''}"


def _attack(adversary: AdversarySection) -> str:
    clients = adversary.clients
    who = _count(clients) if isinstance(clients, int) else f"clients {written(clients)}"
    strength = "" if adversary.strength is None else f", strength {adversary.strength:g}"
    return f"attacked by {who}: {adversary.attack}{strength}"


def clients_of(config: Config) -> str:
    """How many clients there are and take part, and how they are weighed."""
    count, participants = config.clients.count, config.clients.participants
    of = "" if participants in (None, count) else f"{participants:,} of "
    weight = {"uniform": "of equal weight", "samples": "weighed by samples"}[config.clients.weights]
    return f"{of}{count:,} clients {weight}{' per round' if of else ''}"


def spread_of(config: Config) -> str:
    """How the data are spread over the clients, and changed at random."""
    augmented = f", augmented by {written(config.data.augment)}" if config.data.augment else ""
    return f"{config.data.partition}{augmented}"


def progress(run: Run) -> dict[str, Any]:
    """How many rounds of a run are done, and how long the rest will take at its present speed."""
    rounds, records = run.config.rounds, run.records
    done = records[-1].round if records else 0
    words = [f"round {done:,} of {rounds:,}"]
    recent = records[-PACE:]
    if run.status == "running" and len(recent) > 1 and recent[-1].round > recent[0].round:
        measuring = sum(record.evaluation_seconds for record in recent[1:])
        spent = recent[-1].cost.seconds - recent[0].cost.seconds + measuring
        left = (rounds - done) * spent / (recent[-1].round - recent[0].round)
        words.append(f"about {duration(left)} left")
    if run.stopped:
        words.append(run.stopped)
    if not records:
        words.append("waiting for the first measures")
    return {"done": done, "rounds": rounds, "words": " · ".join(words)}


def _data(config: Config, data: DataSummary | None) -> str:
    deployed = config.engine.name == DEPLOYED
    words = [data.name if data else CLIENTS_OWN if deployed else config.data.name]
    if data:
        shape, samples = "×".join(map(str, data.shape)), data.total
        counted = f"{samples:,} samples, " if samples else ""  # hidden if clients are private
        classes = f" ({written(data.class_names)})" if data.class_names else ""
        words.append(f"{counted}{data.classes} classes{classes}, inputs {shape}")
    partition = [] if deployed else [spread_of(config)]
    return " · ".join([*words, *partition, clients_of(config)])


def _features(data: DataSummary | None) -> str:
    """The columns of a table, each with its mean and deviation where it was standardised."""
    if data is None or not data.features:
        return ""
    scales = zip(data.means, data.deviations, strict=True)
    words = [
        name if (mean, deviation) == (0, 1) else f"{name} ({mean:.4g} ± {deviation:.4g})"
        for name, (mean, deviation) in zip(data.features, scales, strict=True)
    ]
    more = len(words) - FEATURES
    return ", ".join(words if more <= 0 else [*words[:FEATURES], f"and {more} more"])


def _shortened(lines: list[str]) -> list[str]:
    more = len(lines) - LISTED
    return lines if more <= 1 else [*lines[:LISTED], f"and {more} more"]
