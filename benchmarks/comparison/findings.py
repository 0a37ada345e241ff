"""What the files of results say, for the programs that make tables of several of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import inf
from pathlib import Path
from statistics import fmean, median
from typing import Any

from method_parts.compression import TARGET, until

from comparison.convex_methods import BEFORE, FISTA, ONE_STEP
from comparison.race import OUTSIDE

RESULTS = Path(__file__).parents[1] / "results"
FAST = ("FedCanon+", ONE_STEP, "newton", FISTA)
"""Accelerated or of second order."""


def read(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def rounds_to(convex: Any, method: str, k: int) -> dict[str, int | None]:
    """The rounds to tolerance k with automatic steps, by problem; None where a run did not come."""
    return {
        problem: of[method]["auto"]["rounds"][k] for problem, of in convex.items() if method in of
    }


def arrived(rounds: dict[str, int | None]) -> list[int]:
    """The rounds of those runs that came to their tolerance."""
    return [number for number in rounds.values() if number is not None]


def median_of(rounds: dict[str, int | None]) -> float:
    """The median over all problems, where a run that did not come took for ever."""
    return median(inf if number is None else number for number in rounds.values())


def others(convex: Any) -> str:
    """How composite methods fare whose server is not accelerated, on problems that they can run."""
    tried = [
        (method, by_steps["auto"])
        for of in convex.values()
        for method, by_steps in of.items()
        if method not in FAST and by_steps["auto"]["ended"] != OUTSIDE
    ]
    before = [run for method, run in tried if method == BEFORE]
    methods = {method for method, _ in tried} - {BEFORE}
    reached = sum(run["rounds"][0] is not None for _, run in tried)
    lengths = [run["length"] for _, run in tried]
    return (
        f"of {len(tried) - len(before)} runs of {len(methods)} other composite methods with "
        f"automatic steps, and of {len(before)} of FedCanon+ without acceleration and with "
        f"α = 1/L, {reached} came to 1e-3 in {min(lengths)} to {max(lengths)} rounds"
    )


def uploads() -> Iterator[tuple[int, int]]:
    """Bytes up and down until f + h is small, without a compressor and with the strongest."""
    runs = read("methods-compression")["all"]
    for label in ("none", "`top_k`, `fraction = 0.01`"):
        sent = until(runs[label])
        if sent is None:
            raise ValueError(f"the run with {label} did not come to f + h ≤ {TARGET}")
        yield sent


def automatic(of: Any) -> list[Any]:
    return list(of["FedCanon+, auto"]["runs"])


def accuracies(networks: Any) -> tuple[float, float, str]:
    """The mean accuracy of ours without trials, that of the best other method, and its name."""
    methods = [name for name in next(iter(networks.values())) if "FedCanon" not in name]

    def accuracy(method: str) -> float:
        return fmean(run["accuracy"] for of in networks.values() for run in of[method]["runs"])

    best = max(methods, key=accuracy)
    return accuracy("FedCanon+, auto"), accuracy(best), best
