"""What the files of results say, for the programs that make tables of several of them."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

from method_parts.compression import until

RESULTS = Path(__file__).parents[1] / "results"
OURS = ("FedCanon+", "FedCanon+, K = 1", "FedCanon+, α = 1/L", "newton", "FISTA")


def read(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def rounds_of(convex: Any, method: str) -> dict[str, list[int]]:
    """The rounds to each tolerance with automatic steps, by problem."""
    return {
        problem: of[method]["auto"]["rounds"]
        for problem, of in convex.items()
        if method in of and of[method]["auto"] and None not in of[method]["auto"]["rounds"]
    }


def others(convex: Any) -> str:
    """How the other composite methods fare with automatic steps, on problems that they can run."""
    runs = [
        by_steps["auto"]
        for of in convex.values()
        for method, by_steps in of.items()
        if method not in OURS and by_steps["auto"]["length"]
    ]
    reached = sum(run["rounds"][1] is not None for run in runs)
    return f"of {len(runs)} runs of nine other methods {reached} came to 1e-6 within 400 rounds"


def uploads() -> tuple[tuple[int, int], ...]:
    """Bytes up and down until f + h is small, without a compressor and with the strongest."""
    runs = read("methods-compression")["all"]
    return tuple(until(runs[label]) or (0, 0) for label in ("none", "`top_k`, `fraction = 0.01`"))


def automatic(of: Any) -> list[Any]:
    return list(of["FedCanon+, auto"]["runs"])


def accuracies(networks: Any) -> tuple[float, float, str]:
    """The mean accuracy of ours without trials, that of the best other method, and its name."""
    methods = [name for name in next(iter(networks.values())) if "FedCanon" not in name]

    def accuracy(method: str) -> float:
        return fmean(run["accuracy"] for of in networks.values() for run in of[method]["runs"])

    best = max(methods, key=accuracy)
    return accuracy("FedCanon+, auto"), accuracy(best), best
