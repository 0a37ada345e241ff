"""The head of a page: what was run, and how far it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedcanon.report.page.groups import Group
from fedcanon.report.page.reading import Run
from fedcanon.report.page.wording import described, different, duration
from fedcanon.runs.config import DEPLOYED

LISTED = 4
"""Different methods, models, … that the head of a page lists."""
PACE = 20
"""Measures from which the pace of a run is taken."""


def title(groups: Sequence[Group]) -> str:
    """Methods and data in one line."""
    runs = [run for group in groups for run in group.runs]
    methods = different(str(run.config.algorithm["name"]) for run in runs)
    data = different(run.config.data.name for run in runs)
    shown = ", ".join(methods) if len(methods) <= LISTED else f"{len(methods)} methods"
    return f"{shown} on {', '.join(data)}"


def facts(groups: Sequence[Group]) -> dict[str, list[str]]:
    """What was run, as short as it can be said; a line for each alternative."""
    runs = [run for group in groups for run in group.runs]
    found = {
        "data": different(map(_data, runs)),
        "model": different(described(run.config.model.model_dump()) for run in runs),
        "penalty": different(described(run.config.penalty) for run in runs),
        "method": different(map(_method, runs)),
        "training": different(map(_training, runs)),
        "seed": [", ".join(different(str(run.config.seed) for run in runs))],
    }
    return {name: _shortened(lines) for name, lines in found.items()}


def progress(run: Run) -> dict[str, Any]:
    """How far a run is, and how long the rest takes at the pace of the last rounds."""
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


def _data(run: Run) -> str:
    config, data, count = run.config, run.data, run.config.clients.count
    words = [data.name if data else config.data.name]
    if data:
        shape, samples = "×".join(map(str, data.shape)), data.total
        words.append(f"{samples:,} samples, {data.classes} classes, inputs {shape}")
    clients = f"{count:,} clients"
    if config.clients.participants not in (None, count):
        clients = f"{config.clients.participants:,} of {clients} per round"
    partition = [] if config.engine.name == DEPLOYED else [config.data.partition]
    return " · ".join([*words, *partition, clients])


def _method(run: Run) -> str:
    compression = run.config.compression
    sends = [] if compression["name"] == "none" else [f"uploads through {described(compression)}"]
    return " · ".join([described(run.config.algorithm), *sends])


def _training(run: Run) -> str:
    config = run.config
    return f"{config.rounds:,} rounds · batches of {config.batch_size} · {config.precision}"


def _shortened(lines: list[str]) -> list[str]:
    more = len(lines) - LISTED
    return lines if more <= 1 else [*lines[:LISTED], f"and {more} more"]
