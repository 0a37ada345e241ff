"""The default run, a network on digits, with other methods and settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from comparison.journal import Journal, Outcome
from rich.progress import Progress

from fedcanon import load_config, train
from fedcanon.runs.compare import variants


def command(specs: Sequence[str], settings: Sequence[str]) -> str:
    """The command that does all of these runs, as a block of a page."""
    lines = ["fedcanon compare"]
    for word in [*specs, *(f"--set {setting}" for setting in settings)]:
        if len(lines[-1]) + len(word) < 96:
            lines[-1] += f" {word}"
        else:
            lines.append(f"  {word}")
    return "```bash\n" + " \\\n".join(lines) + "\n```\n\n"


def outcome_of(history: pd.DataFrame) -> Outcome:
    """What a run has reached and spent, and its course."""
    last = history.iloc[-1]
    course = history[["round", "objective", "accuracy", "bytes_up", "bytes_down"]]
    return {
        **{name: float(last[name]) for name in ("objective", "gradient_norm", "accuracy")},
        "zeros": float(last["sparsity"]),
        "prox": int(last["client_prox"] + last["server_prox"]),
        "up": int(last["bytes_up"]),
        "down": int(last["bytes_down"]),
        "course": {name: course[name].tolist() for name in course},
    }


def outcomes(
    journal: Journal,
    progress: Progress,
    specs: Mapping[str, str],
    settings: Sequence[str],
    *,
    smoke: bool,
) -> dict[str, Any]:
    """Do all runs that are not in the journal; by label, as ``fedcanon compare`` would."""
    if smoke:
        specs = dict(list(specs.items())[:2])
        settings = ["rounds=2", "model.name=linear"]
    task = progress.add_task("", total=len(specs))

    def run(spec: str) -> Outcome:
        return outcome_of(train(variants(load_config(None, settings), [spec])[spec]).history)

    found = {}
    for label, spec in specs.items():
        progress.update(task, description=spec)
        key = {"spec": spec, "settings": list(settings)}
        found[label] = journal.outcome(key, lambda spec=spec: run(spec))
        progress.advance(task)
    return found


def megabytes(count: float) -> str:
    """Return two or more digits of so many bytes in MB."""
    size = count / 1e6
    return f"{size:,.0f} MB" if size >= 10 else f"{size:.1f} MB"
