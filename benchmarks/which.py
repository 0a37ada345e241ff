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
from statistics import median
from typing import NamedTuple

from comparison.findings import RESULTS, accuracies, automatic, others, read, rounds_of, uploads
from comparison.tables import table
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from method_parts.compression import TARGET

FOLDER = Path(__file__).parent
PAPER = FOLDER.parent / "docs" / "paper" / "laptop"
ALL, SOME = "breast cancer, ℓ1", "breast cancer, ℓ1, 30 %"
EXAMPLE = "fedcanon run examples/breast_cancer.toml"
PRIVATE = (
    "fedcanon run --set data.name=a9a --set data.partition=dirichlet:0.5 "
    "--set clients.weights=samples --set model.name=logistic "
    "--set penalty.name=l1 --set penalty.kappa=0.001 --set batch_size=full --set rounds=50 "
    "--set algorithm.local_steps=5 --set algorithm.beta=2.0 --set privacy.level=record "
    "--set privacy.epsilon=3 --set privacy.clip=3"
)
HOSTILE = (
    f"{EXAMPLE} --set rounds=250 --set clients.weights=uniform --set robust.byzantine=2 "
    "--set adversary.attack=sign_flip --set adversary.clients=2"
)


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
    convex, networks = read("rounds-convex"), read("rounds-networks")
    rounds = {name: rounds_of(convex, name) for name in ("newton", "FedCanon+", "FISTA")}
    own = read("methods-local-steps")["rounds"]
    arrived = sum(of["FedCanon+"]["auto"]["rounds"][2] is not None for of in convex.values())
    yield Case(
        "a linear model with at most some thousand parameters",
        "[newton](newton.md)",
        f"{EXAMPLE} --set algorithm.name=newton",
        f"‖G‖ ≤ 1e-9 after {own['newton'][2]} rounds; at most "
        f"{max(found[2] for found in rounds['newton'].values())} on {len(rounds['newton'])} other "
        "problems",
        "methods.py local-steps, rounds.py convex",
    )
    yield Case(
        "a convex problem with more parameters",
        "[FedCanon+](fedcanon-plus.md), accelerated (the default)",
        EXAMPLE,
        f"‖G‖ ≤ 1e-9 after {own['K = 10'][2]} rounds, and on {arrived} of {len(convex)} other "
        f"problems; to 1e-3 in the median "
        f"{median(found[0] for found in rounds['FedCanon+'].values()):g} rounds, FISTA with a "
        f"gradient of all clients {median(found[0] for found in rounds['FISTA'].values()):g}; "
        f"{others(convex)}",
        "methods.py local-steps, rounds.py convex",
    )
    reached, rival, name = accuracies(networks)
    diverged = sum(run["diverged"] for of in networks.values() for run in automatic(of))
    yield Case(
        "a network",
        "FedCanon+, damped and accelerated (the default)",
        "fedcanon run",
        f"{reached:.1%} without any trial, mean over {len(networks)} cells; {name}, the best of "
        f"the others with five trials each, {rival:.1%}; {diverged} of "
        f"{sum(len(automatic(of)) for of in networks.values())} runs diverged",
        "rounds.py networks --size quick",
    )
    yield Case(
        "many clients that are absent",
        "FedCanon+",
        f"{EXAMPLE} --set clients.participants=3",
        f"with 3 of 10 clients in a round ‖G‖ ≤ 1e-6 after {own['3 of 10'][1]} rounds, with all "
        f"after {own['K = 10'][1]}; on another partition {rounds['FedCanon+'][SOME][1]} and "
        f"{rounds['FedCanon+'][ALL][1]}, FISTA with all {rounds['FISTA'][ALL][1]}",
        "methods.py local-steps, rounds.py convex",
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
    (plain_up, plain_down), (up, down) = uploads()
    yield Case(
        "a slow way up from the clients",
        "FedCanon+ with [compressed uploads](../how-to/compress-uploads.md)",
        "fedcanon run --set compression.name=top_k --set compression.fraction=0.01",
        f"55,210 parameters, to f + h ≤ {TARGET:g}: {up / 1e6:.1f} MB up instead of "
        f"{plain_up / 1e6:.0f} MB. Downloads are not compressed and it takes more rounds: both "
        f"ways {(up + down) / 1e6:.0f} MB instead of {(plain_up + plain_down) / 1e6:.0f} MB",
        "methods.py compression",
    )
    records = read("trust-records")["κ = 0.001, C = 3"]
    private, other = records["FedCanon+, averaged, 3"], records["FedMiD, averaged, 3"]
    yield Case(
        "a guarantee of [privacy](../how-to/privacy.md)",
        "FedCanon+, its average",
        PRIVATE,
        f"ε = 3 for every record, the best of three steps: accuracy {private['accuracy']:.3f} "
        f"({records['optimum']['accuracy']:.3f} without privacy), f + h off by "
        f"{private['gap']:.4f}; FedMiD {other['gap']:.4f}",
        "trust.py records",
    )
    rules = read("trust-rules")["breast cancer"]
    yield Case(
        "some clients that may be hostile",
        "FedCanon+ with [a robust rule](../how-to/hostile-clients.md)",
        HOSTILE,
        "two of ten clients flip signs, distance to the honest optimum (1 = its length): "
        + ", ".join(
            f"{rule} {median(rules[rule]['sign_flip']):.2g}"
            for rule in ("mean", "filter", "geometric-median")
        ),
        "trust.py rules",
    )


def picture() -> Figure:
    """Rounds to ‖G‖ ≤ 1e-6 on every convex problem, a mark for each method that arrives."""
    convex = read("rounds-convex")
    figure = Figure(figsize=(7.2, 4.2), dpi=130, layout="constrained")
    axes = figure.subplots()
    styles = {"newton": ("o", "#e8590c"), "FedCanon+": ("s", "#4c6ef5"), "FISTA": ("^", "#868e96")}
    problems = list(convex)
    for method, (marker, colour) in styles.items():
        found = rounds_of(convex, method)
        label = "FISTA, a gradient of all clients per round" if method == "FISTA" else method
        axes.scatter(
            [found[name][1] for name in found],
            [problems.index(name) for name in found],
            marker=marker,
            color=colour,
            label=label,
        )
    axes.axvline(400, color="#ced4da", linestyle="--", linewidth=1)
    axes.set_xlim(1.5, 1700)
    axes.set_title(
        "dashed: 400 rounds, within which no other federated method arrived",
        fontsize=8,
        color="#495057",
        loc="right",
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
