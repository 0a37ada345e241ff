"""Newton on sparse logistic regressions: ‖G‖ after each round, and what the prox costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from comparison.journal import Journal, Outcome
from comparison.tables import table
from rich.progress import Progress

from fedcanon import train
from method_parts.local_steps import CONFIG
from method_parts.names import digit

A9A = {"data": {"name": "a9a"}}
PROBLEMS: dict[str, dict[str, Any]] = {
    "breast cancer, κ = 0.01": {"penalty": {"kappa": 0.01}},
    "breast cancer, κ = 0.001": {"penalty": {"kappa": 0.001}},
    "A9A, κ = 10⁻³": {**A9A, "penalty": {"kappa": 1e-3}},
    "A9A, κ = 10⁻⁴": {**A9A, "penalty": {"kappa": 1e-4}},
}
OTHERS: dict[str, dict[str, Any]] = {
    "groups": {"penalty": {"name": "group_lasso", "kappa": 0.01, "groups": 3, "axis": 1}},
    "float32": {"precision": "float32", "rounds": 20},
}
"""What only sentences speak of; all on breast cancer."""


def course(settings: dict[str, Any]) -> Outcome:
    """‖G‖ after each round until it is 10⁻¹¹, and how often each round calls the prox."""
    ends = {"stop": {"gradient": 1e-11}, "rounds": 100}
    history = train(CONFIG, algorithm={"name": "newton"}, **{**ends, **settings}).history
    return {
        "norms": history["gradient_norm"].tolist()[1:],
        "prox": history["server_prox"].diff().tolist()[1:],
    }


def measure(journal: Journal, progress: Progress, *, smoke: bool) -> Any:
    """Every run; for a short look those that need no files of A9A."""
    runs = {k: run for k, run in (PROBLEMS | OTHERS).items() if not smoke or "data" not in run}
    task = progress.add_task("", total=len(runs))
    found = {}
    for label, settings in runs.items():
        progress.update(task, description=label)
        found[label] = journal.outcome(settings, lambda settings=settings: course(settings))
        progress.advance(task)
    return found


def tables(found: Any) -> Iterator[tuple[str, str]]:
    """The table of the page."""
    rows = [
        (label, ", ".join(map(digit, found[label]["norms"])))
        for label in PROBLEMS
        if label in found
    ]
    yield "newton", table(("problem", "‖G‖"), rows)


def sentences(found: Any) -> Iterator[tuple[str, str]]:
    """What the page says of the prox and of single precision."""
    calls = [count for label in PROBLEMS for count in found[label]["prox"]]
    yield (
        "newton",
        f"{min(calls):.0f} to {max(calls):.0f} times in a round on the problems below, and up to "
        f"{max(found['groups']['prox']):.0f} times with a group lasso on breast cancer",
    )
    yield "newton", f'`precision = "float32"` ends at {digit(found["float32"]["norms"][-1])}'
