"""Which method when: python benchmarks/which.py.

Reads what the other benchmarks and ``fedcanon paper`` have measured, and writes one table of cases
with the method to take, the command and the number behind it, and one picture. It measures nothing
itself and takes a second: run it after the others.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from math import isclose
from pathlib import Path
from statistics import median
from textwrap import fill
from typing import NamedTuple

from comparison.findings import (
    RESULTS,
    accuracies,
    arrived,
    automatic,
    median_of,
    others,
    read,
    rounds_to,
    uploads,
)
from comparison.tables import table
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from method_parts.compression import TARGET

FOLDER = Path(__file__).parent
PAPER = FOLDER.parent / "docs" / "paper" / "laptop"
ALL, SOME = "breast cancer, ℓ1", "breast cancer, ℓ1, 30 %"
LINEAR = "methods.py local-steps, rounds.py convex --rounds 400"
EXAMPLE = "fedcanon run examples/breast_cancer.toml"
PRIVATE = (
    "fedcanon run --set data.name=a9a --set data.partition=dirichlet:0.5 "
    "--set clients.weights=samples --set model.name=logistic "
    "--set penalty.name=l1 --set penalty.kappa=0.005 --set batch_size=full --set rounds=50 "
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
    own = read("methods-local-steps")["rounds"]
    newton, ours = (rounds_to(convex, name, 2) for name in ("newton", "FedCanon+"))
    few, fista = (rounds_to(convex, name, 1) for name in ("FedCanon+", "FISTA"))
    some = [name for name in few if name.endswith("30 %")]
    slower = [f"{few[name]} to {fista[name]}" for name in some if few[name] > fista[name]]
    yield Case(
        "a linear model with some hundred parameters at most",
        "[newton](newton.md)",
        f"{EXAMPLE} --set algorithm.name=newton",
        f"‖G‖ ≤ 1e-9 after {own['newton'][2]} rounds; at most {max(arrived(newton))} on "
        f"{len(arrived(newton))} of {len(newton)} other problems",
        LINEAR,
    )
    yield Case(
        "a linear model with more parameters",
        "[FedCanon+](fedcanon-plus.md), accelerated (the default)",
        EXAMPLE,
        f"‖G‖ ≤ 1e-9 after {own['K = 10'][2]} rounds, and on {len(arrived(ours))} of {len(ours)} "
        f"other problems; to 1e-3 in the median {median_of(rounds_to(convex, 'FedCanon+', 0)):g} "
        f"rounds, FISTA with a gradient of all clients "
        f"{median_of(rounds_to(convex, 'FISTA', 0)):g}; {others(convex)}",
        LINEAR,
    )
    reached, rival, name = accuracies(networks)
    diverged = sum(run["diverged"] for of in networks.values() for run in automatic(of))
    yield Case(
        "a network",
        "FedCanon+, damped and accelerated (the default)",
        "fedcanon run",
        f"{reached:.1%} with automatic steps, mean over {len(networks)} cells (three networks, "
        f"three partitions of Fashion-MNIST); level with {name}, the best of "
        f"the others with five trials each, {rival:.1%}; {diverged} of "
        f"{sum(len(automatic(of)) for of in networks.values())} runs diverged",
        "rounds.py networks --size quick",
    )
    yield Case(
        "many clients that are absent",
        "FedCanon+",
        f"{EXAMPLE} --set clients.participants=3",
        f"with 3 of 10 clients in a round ‖G‖ ≤ 1e-6 after {own['3 of 10'][1]} rounds, with all "
        f"after {own['K = 10'][1]}; on another partition {few[SOME]} and {few[ALL]}, FISTA with "
        f"all {fista[ALL]}. In {len(slower)} of {len(some)} such problems FISTA with all clients "
        f"takes fewer rounds ({', '.join(slower)})",
        LINEAR,
    )
    times = json.loads((PAPER / "time.json").read_text())["data"]
    masks, quick = (
        times[form]["80"]["FedMiD"] / times[form]["80"]["FedCanon+"]
        for form in ("boolean masks", "one pass")
    )
    costs = json.loads((PAPER / "costs.json").read_text())["data"]
    yield Case(
        "a penalty whose prox is costly",
        "FedCanon+: one prox per round, on the server",
        "fedcanon run --set penalty.name=nuclear --set penalty.kappa=0.01",
        f"{costs['FedCanon+']['prox']:g} prox per round with 3 of 10 clients and K = 5, FedMiD and "
        f"FedDA {costs['FedMiD']['prox']:g}, ZA1, which needs all clients, "
        f"{costs['ZA1']['prox']:g}. With K = 80 and SCAD, written with boolean masks, FedMiD takes "
        f"{masks:.1f} times as long as FedCanon+; with the prox of this package {quick:.2f} times: "
        "one prox per round pays where a prox is costly",
        "fedcanon paper costs, fedcanon paper time",
    )
    plain, sent = uploads()
    yield Case(
        "a slow way up from the clients",
        "FedCanon+ with [compressed uploads](../how-to/compress-uploads.md)",
        "fedcanon run --set compression.name=top_k --set compression.fraction=0.01",
        f"55,210 parameters, to f + h ≤ {TARGET:g}: {sent[0] / 1e6:.1f} MB up instead of "
        f"{plain[0] / 1e6:.0f} MB. Downloads are not compressed and it takes more rounds: both "
        f"ways {sum(sent) / 1e6:.0f} MB instead of {sum(plain) / 1e6:.0f} MB",
        "methods.py compression",
    )
    weak, records = (read("trust-records")[f"κ = {kappa}, C = 3"] for kappa in (0.001, 0.005))
    private, other = records["FedCanon+, averaged, 3"], records["FedMiD, averaged, 3"]
    yield Case(
        "a guarantee of [privacy](../how-to/privacy.md)",
        "FedCanon+, its average",
        PRIVATE,
        f"ε = 3 for every record, the best of three steps: accuracy {private['accuracy']:.3f} "
        f"({records['optimum']['accuracy']:.3f} without privacy), f + h off by "
        f"{private['gap']:.4f}; FedMiD {other['gap']:.4f}. Which weights are zero agrees with "
        f"F1 = {private['f1']:.2f}; FedMiD {other['f1']:.2f}, or "
        f"{records['FedMiD, cut, 3']['f1']:.2f} if weights below 0.01 are cut. With κ = 0.001 "
        f"FedCanon+ has {weak['FedCanon+, averaged, 3']['f1']:.2f}, and the run warns of noise",
        "trust.py records",
    )
    rules = read("trust-rules")["breast cancer"]
    middle = {rule: {a: median(far) for a, far in of.items()} for rule, of in rules.items()}
    passed = [
        f"`{attack}`"
        for attack, far in middle["mean"].items()
        if attack != "nobody" and isclose(middle["filter"][attack], far, rel_tol=0.01)
    ]
    yield Case(
        "some clients that may be hostile",
        "FedCanon+ with [a robust rule](../how-to/hostile-clients.md)",
        HOSTILE,
        "two of ten clients flip signs, distance to the honest optimum (1 = its length), median "
        f"of {len(rules['mean']['sign_flip'])} partitions and, in brackets, the farthest: "
        + ", ".join(
            f"{rule} {median(found):.2g} ({max(found):.2g})"
            for rule in ("mean", "filter", "nnm+trimmed-mean")
            for found in [rules[rule]["sign_flip"]]
        )
        + f". Against {', '.join(passed)} the filter is no better than the mean, and "
        f"nnm+trimmed-mean is {middle['nnm+trimmed-mean']['nobody']:.2g} off if nobody "
        "attacks. Measured with ridge 0.02 and fixed steps",
        "trust.py rules",
    )


def picture() -> Figure:
    """Rounds to ‖G‖ ≤ 1e-6 on every problem of the suite, a mark for each method that arrives."""
    convex = read("rounds-convex")
    figure = Figure(figsize=(7.2, 4.2), dpi=130, layout="constrained")
    axes = figure.subplots()
    styles = {"newton": ("o", "#e8590c"), "FedCanon+": ("s", "#4c6ef5"), "FISTA": ("^", "#868e96")}
    problems = list(convex)
    for method, (marker, colour) in styles.items():
        found = {name: t for name, t in rounds_to(convex, method, 1).items() if t is not None}
        label = "FISTA, a gradient of all clients per round" if method == "FISTA" else method
        axes.scatter(
            list(found.values()),
            [problems.index(name) for name in found],
            marker=marker,
            color=colour,
            label=label,
        )
    axes.set_xlim(1.5, 1700)
    axes.set_title(fill(others(convex), 90), fontsize=8, color="#495057", loc="right")
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
