"""Which method when: python benchmarks/which.py.

Reads what the other benchmarks and ``fedcanon paper`` have measured, and writes one table of cases
with the method to take, the command and the number behind it, and one picture. It measures nothing
itself and takes a second: run it after the others.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from comparison.tables import table
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results"
PAPER = FOLDER.parent / "docs" / "paper" / "laptop"
TOLERANCES = ("1e-3", "1e-6", "1e-9")
ALL, SOME = "breast cancer, ℓ1", "breast cancer, ℓ1, 30 %"


class Case(NamedTuple):
    """What a user has, what to take, how to call it, and why."""

    case: str
    take: str
    command: str
    number: str
    source: str

    def cells(self) -> tuple[str, ...]:
        return self.case, self.take, f"`{self.command}`", self.number, f"`{self.source}`"


def cases() -> Iterator[Case]:
    """All cases, in the order of the table."""
    convex, networks = _read("rounds-convex"), _read("rounds-networks")
    rounds = {name: _rounds(convex, name) for name in ("newton", "FedCanon+", "FISTA")}
    arrived = sum(of["FedCanon+"]["auto"]["rounds"][2] is not None for of in convex.values())
    yield Case(
        "a linear model with at most some thousand parameters",
        "[newton](newton.md)",
        "fedcanon run --set model.name=linear --set algorithm.name=newton",
        f"‖G‖ ≤ 1e-9 in {rounds['newton'][ALL][2]} rounds on breast "
        f"cancer, at most {max(found[2] for found in rounds['newton'].values())} on "
        f"{len(rounds['newton'])} problems",
        "benchmarks/rounds.py convex",
    )
    yield Case(
        "a convex problem with more parameters",
        "[FedCanon+](fedcanon-plus.md), accelerated (the default)",
        "fedcanon run --set model.name=linear",
        f"‖G‖ ≤ 1e-9 on {arrived} of {len(convex)} problems; to 1e-3 in the median "
        f"{median(found[0] for found in rounds['FedCanon+'].values()):g} rounds, FISTA with a "
        f"gradient of all clients {median(found[0] for found in rounds['FISTA'].values()):g}; "
        f"{_others(convex)}",
        "benchmarks/rounds.py convex",
    )
    own, rival, name = _networks(networks)
    diverged = sum(run["diverged"] for of in networks.values() for run in _auto(of))
    yield Case(
        "a network",
        "FedCanon+, damped and accelerated (the default)",
        "fedcanon run",
        f"{own:.1%} without any trial, mean over {len(networks)} cells; {name}, the best of the "
        f"others with five trials each, {rival:.1%}; {diverged} of "
        f"{sum(len(_auto(of)) for of in networks.values())} runs diverged",
        "benchmarks/rounds.py networks --size quick",
    )
    yield Case(
        "many clients that are absent",
        "FedCanon+",
        "fedcanon run --set clients.participants=3",
        f"breast cancer with 3 of 10 clients in a round: ‖G‖ ≤ 1e-6 after "
        f"{rounds['FedCanon+'][SOME][1]} rounds, with all {rounds['FedCanon+'][ALL][1]}; "
        f"FISTA with all {rounds['FISTA'][ALL][1]}",
        "benchmarks/rounds.py convex",
    )
    seconds = json.loads((PAPER / "time.json").read_text())["data"]["boolean masks"]["80"]
    costs = json.loads((PAPER / "costs.json").read_text())["data"]
    yield Case(
        "a penalty whose prox is costly",
        "FedCanon+: one prox per round, on the server",
        "fedcanon run --set penalty.name=nuclear --set penalty.kappa=0.01",
        f"{costs['FedCanon+']['prox']:g} prox per round with 3 of 10 clients and K = 5, FedMiD and "
        f"FedDA {costs['FedMiD']['prox']:g}, ZA1 {costs['ZA1']['prox']:g}; where a prox costs as "
        f"much as a gradient, FedMiD takes "
        f"{seconds['FedMiD'] / seconds['FedCanon+']:.1f} times as long",
        "fedcanon paper costs, fedcanon paper time",
    )
    sent = {m: convex[SOME if m == "FedCanon+" else ALL][m]["auto"]["bytes"][1] for m in rounds}
    yield Case(
        "few bytes",
        "FedCanon+ with few participants, and [compressed](../how-to/compress-uploads.md)",
        "fedcanon run --set clients.participants=3 --set compression.name=top_k",
        f"breast cancer to ‖G‖ ≤ 1e-6: {sent['FedCanon+'] / 1e6:.2f} MB with 3 of 10 clients, "
        f"newton {sent['newton'] / 1e6:.2f} MB, FISTA {sent['FISTA'] / 1e6:.2f} MB",
        "benchmarks/rounds.py convex",
    )
    records = _read("trust-records")["κ = 0.001, C = 3"]
    private, other = records["FedCanon+, averaged, 3"], records["FedMiD, averaged, 3"]
    yield Case(
        "a guarantee of privacy",
        "FedCanon+, its average",
        "fedcanon run --set privacy.level=record --set privacy.epsilon=3",
        f"A9A, ε = 3 for every record: accuracy {private['accuracy']:.3f} "
        f"({records['optimum']['accuracy']:.3f} without privacy), f + h off by "
        f"{private['gap']:.4f}; FedMiD {other['gap']:.4f}",
        "benchmarks/trust.py records",
    )
    rules = _read("trust-rules")["breast cancer"]
    yield Case(
        "some clients that may be hostile",
        "FedCanon+ with [a robust rule](../how-to/hostile-clients.md)",
        "fedcanon run --set robust.byzantine=2",
        "two of ten clients flip signs, distance to the honest optimum (1 = its length): "
        + ", ".join(
            f"{rule} {median(rules[rule]['sign_flip']):.3g}"
            for rule in ("mean", "filter", "geometric-median")
        ),
        "benchmarks/trust.py rules",
    )


def _read(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def _rounds(convex: Any, method: str) -> dict[str, list[int]]:
    """The rounds to each tolerance with automatic steps, by problem."""
    return {
        problem: of[method]["auto"]["rounds"]
        for problem, of in convex.items()
        if method in of and of[method]["auto"] and None not in of[method]["auto"]["rounds"]
    }


def _others(convex: Any) -> str:
    """How the other composite methods fare at their best."""
    ours = ("FedCanon+", "FedCanon+, K = 1", "FedCanon+, α = 1/L", "newton", "FISTA")
    tried = [
        outcome["rounds"][1]
        for of in convex.values()
        for method, by_steps in of.items()
        if method not in ours
        for outcome in [by_steps.get("auto")]
        if outcome
    ]
    reached = sum(rounds is not None for rounds in tried)
    return f"of {len(tried)} runs of other methods {reached} came to 1e-6 within 400 rounds"


def _auto(of: Any) -> list[Any]:
    return list(of["FedCanon+, auto"]["runs"])


def _networks(networks: Any) -> tuple[float, float, str]:
    """The mean accuracy of ours without trials, that of the best other method, and its name."""
    methods = [name for name in next(iter(networks.values())) if "FedCanon" not in name]

    def accuracy(method: str) -> float:
        return fmean(run["accuracy"] for of in networks.values() for run in of[method]["runs"])

    best = max(methods, key=accuracy)
    return accuracy("FedCanon+, auto"), accuracy(best), best


def picture() -> Figure:
    """Rounds to ‖G‖ ≤ 1e-6 on every convex problem, a mark for each method that arrives."""
    convex = _read("rounds-convex")
    figure = Figure(figsize=(7.2, 4.2), dpi=130, layout="constrained")
    axes = figure.subplots()
    styles = {"newton": ("o", "#e8590c"), "FedCanon+": ("s", "#4c6ef5"), "FISTA": ("^", "#868e96")}
    problems = list(convex)
    for method, (marker, colour) in styles.items():
        found = _rounds(convex, method)
        label = "FISTA, a gradient of all clients per round" if method == "FISTA" else method
        axes.scatter(
            [found[name][1] for name in found],
            [problems.index(name) for name in found],
            marker=marker,
            color=colour,
            label=label,
        )
    axes.axvline(400, color="#ced4da", linestyle="--", linewidth=1)
    axes.annotate(
        "400 rounds: no other\nfederated method arrived",
        (400, 7.4),
        xytext=(6, 0),
        textcoords="offset points",
        fontsize=8,
        color="#495057",
        va="top",
    )
    axes.set(xscale="log", xlabel="rounds to ‖G‖ ≤ 1e-6, automatic steps")
    axes.set_yticks(range(len(problems)), problems, fontsize=8)
    axes.grid(axis="x", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--results", type=Path, default=RESULTS)
    folder = parser.parse_args().results
    folder.mkdir(parents=True, exist_ok=True)
    header = ("you have", "take", "command", "the number behind it", "measured by")
    text = table(header, [case.cells() for case in cases()])
    (folder / "which.md").write_text(text, encoding="utf-8")
    FigureCanvasAgg(figure := picture())
    figure.savefig(folder / "which.png")
    print(text)


if __name__ == "__main__":
    main()
