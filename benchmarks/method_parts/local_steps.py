"""Rounds to a tolerance on breast cancer with automatic steps, by the number of local steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from comparison.journal import Journal, Outcome
from comparison.tables import table
from rich.progress import Progress

from fedcanon import train

TOLERANCES = (1e-3, 1e-6, 1e-9)
ROUNDS = 3000
CONFIG = Path(__file__).parents[2] / "examples" / "breast_cancer.toml"
STEPS = (1, 2, 5, 10, 20, 40)


def rounds_of(algorithm: dict[str, Any], participants: int | None = None) -> Outcome:
    """The first round at which each tolerance is met; None if it is not."""
    few = {} if participants is None else {"clients": {"participants": participants}}
    history = train(CONFIG, algorithm=algorithm, **few).history
    met = [history["round"][history["gradient_norm"] <= bound] for bound in TOLERANCES]
    return {"rounds": [None if rounds.empty else int(rounds.iloc[0]) for rounds in met]}


def measure(journal: Journal, progress: Progress, *, smoke: bool) -> Any:
    """FedCanon+ by K, with few participants, without acceleration, and two other methods."""
    name = {"name": "fedcanon+"}
    runs: dict[str, tuple[Any, ...]] = {
        f"K = {steps}": ({**name, "local_steps": steps},) for steps in STEPS
    }
    runs["3 of 10"] = (name, 3)
    runs["not accelerated"] = ({**name, "accelerated": False},)
    runs |= {other: ({"name": other},) for other in ("newton", "pgd")}
    chosen = {"newton": runs["newton"]} if smoke else runs
    task = progress.add_task("", total=len(chosen))
    found = {}
    for label, given in chosen.items():
        progress.update(task, description=label)
        outcome = journal.outcome({"run": given}, lambda given=given: rounds_of(*given))
        found[label] = outcome["rounds"]
        progress.advance(task)
    return {"rounds": found}


def cell(found: list[int | None]) -> str:
    """The rounds to the three tolerances, as pages print them."""
    if found[0] is None:
        return f"more than {ROUNDS:,}"
    return " / ".join("–" if rounds is None else f"{rounds:,}" for rounds in found)


def tables(found: Any) -> Iterator[tuple[str, str]]:
    """The table by K, and that of FedCanon+."""
    found = found["rounds"]
    steps = [label for label in found if label.startswith("K = ")]
    header = ("K", *(label.removeprefix("K = ") for label in steps))
    row = ("automatic steps", *(cell(found[label]) for label in steps))
    yield "local-steps", table(header, [row])
    shown = {
        "automatic, all clients": "K = 10",
        "automatic, 3 of 10 clients": "3 of 10",
        "the same without acceleration, all clients": "not accelerated",
    }
    rows = [(text, cell(found[label])) for text, label in shown.items() if label in found]
    yield "breast-cancer", table(("steps", "rounds"), rows)


def sentences(found: Any) -> Iterator[tuple[str, str]]:
    """What the page on steps says beside its table."""
    page, found = "../how-to/steps", found["rounds"]
    slow = all(found[label][0] is None for label in ("not accelerated", "pgd"))
    yield page, f"Without acceleration FedCanon+ is {'above' if slow else 'below'} 10⁻³ after 3,000"
    yield page, f"[Newton](../methods/newton.md) takes {cell(found['newton'])}."
    yield page, f"in each round FedCanon+ takes {cell(found['3 of 10'])}."
