"""What single settings of methods do on the quadratics: the tables of their own pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from comparison.journal import Journal, Outcome
from comparison.tables import table
from rich.progress import Progress

from fedcanon import fit
from fedcanon.algorithms import DecentralisedProxSkip
from fedcanon.errors import DivergenceError
from fedcanon.penalties import L1, MCP, SCAD
from method_parts.names import digit, short
from method_parts.quadratics import H, federation, minimiser, solved_with
from method_parts.stops import PARTLY, Run, algorithm_of, several

NODES = 10
TOPOLOGIES = ("star", "complete", "ring", "grid", "erdos-renyi:0.4")
NETWORK = {"name": "decentralised-proxskip", "beta": 0.5, "probability": 0.3}
STRENGTHS = (0.0, 0.001, 0.01, 0.1, 0.3, 1.0)
FAST = {"name": "fast-fedda", "beta": 0.5}
MODES: dict[str, Run] = {
    "`published`": {},
    "`per_step`": {"server_prox": "per_step"},
    "`none`": {"server_prox": "none"},
    "`client_prox = false`": {"client_prox": False},
    "`paper`": {"server_prox": "paper"},
}
MODE_STEPS = {0.05: 1000, 0.005: 4000}
"""β, and the rounds after which FedMiD has stopped."""
SKIPS, ETAS = (0.0, 0.3, 0.5), (1.0, 0.1)
PROBABILITIES = (1.0, 0.5, 0.3, 0.2, 0.1)
WEAK = {"mcp": MCP(0.3, 4.0), "scad": SCAD(0.3)}
RUNS: dict[str, list[Run]] = {
    "topologies": [{**NETWORK, "topology": kind, "to": 1e-6} for kind in TOPOLOGIES],
    "half way": [{**NETWORK, "chi": 0.5, "to": 1e-6}],
    "mu": [{**FAST, "mu": mu} for mu in STRENGTHS],
    "fast-fedda by rounds": [{**FAST, "mu": 0.1, "rounds": count} for count in (100, 1000, 4000)],
    "power": [{**FAST, "mu": 0.1, "power": power} for power in (1.0, 2.0)],
    "fast-fedda, 2 of 5": [{**FAST, "mu": 0.1, **PARTLY}],
    "modes": [
        {"name": "fedmid", **mode, "beta": beta, "rounds": rounds}
        for mode in MODES.values()
        for beta, rounds in MODE_STEPS.items()
    ],
    "fedda": [
        {"name": "fedda", "beta": 0.05, "rounds": 4000},
        {"name": "fedda", "beta": 0.005, "rounds": 4000},
        {"name": "fedda", "beta": 0.05, "local_steps": 1, "rounds": 8000},
        {"name": "fedda", "beta": 0.1, **PARTLY},
    ],
    "skips": [
        {"name": "fedpd", "skip": skip, "eta": eta, "beta": 1 / (1 + 1 / eta), "rounds": 3000}
        for skip in SKIPS
        for eta in ETAS
    ],
    "too large a beta": [{"name": "fedpd", "eta": 0.1, "beta": 0.5}],
    "probabilities": several("proxskip", "probability", PROBABILITIES, to=1e-6),
    "pgd": [{"name": "pgd", "to": 1e-6}],
    "proxskip to rounding": [{"name": "proxskip", "probability": 0.3}],
}


def ended(run: Run) -> Outcome:
    """Where a run ends on the quadratics, how far from two minimisers, and what it has cost."""
    clients = NODES if run["name"] == NETWORK["name"] else 5
    algorithm = algorithm_of(run)
    training = federation(algorithm, run.get("participants"), clients=clients)
    best = minimiser(solved_with(algorithm), clients)

    def is_near() -> bool:
        return float((training.model - best).norm()) <= run["to"]

    try:
        while not is_near() if "to" in run else training.rounds_done < run.get("rounds", 1000):
            training.step()
    except DivergenceError:
        return {"diverged": True}
    cost, model = training.cost, training.model
    return {
        "rounds": training.rounds_done,
        "vectors": (cost.floats_up + cost.floats_down) / (clients * len(model)),
        "prox": cost.client_prox + cost.server_prox,
        "distance": float((model - best).norm()),
        "to f + 2h": float((model - minimiser(L1(2 * H.kappa), clients)).norm()),
        "not 0": int((model != 0).sum()),
    }


def stationary(penalty: str, rounds: int) -> Outcome:
    """‖G‖ of ZA1 with its automatic steps and a weakly convex penalty."""
    training = federation(algorithm_of({"name": "za1"}), penalty=WEAK[penalty])
    return {"norm": fit(training, rounds, evaluate_every=rounds).last.gradient_norm}


def measure(journal: Journal, progress: Progress, *, smoke: bool) -> Any:
    """Every run that is not in the journal; a few rounds of each for a short look."""
    task = progress.add_task("", total=sum(map(len, RUNS.values())))

    def outcome(run: Run) -> Outcome:
        progress.update(task, description=" ".join(map(str, run.values())))
        run = {key: run[key] for key in run if key != "to"} | {"rounds": 2} if smoke else run
        progress.advance(task)
        return journal.outcome(run, lambda: ended(run))

    found = {label: [outcome(run) for run in runs] for label, runs in RUNS.items()}
    rounds = 2 if smoke else 1500
    found["weakly convex"] = [
        journal.outcome(
            {"name": "za1", "penalty": name, "rounds": rounds},
            lambda name=name: stationary(name, rounds),
        )
        for name in WEAK
    ]
    return found


def distances(outcomes: Sequence[Outcome]) -> list[str]:
    """How far from the minimiser runs end, as pages print it."""
    return [short(one["distance"]) for one in outcomes]


def tables(found: Any) -> Iterator[tuple[str, str]]:
    """The tables of the pages, by name."""
    yield (
        "topologies",
        table(
            ("topology", "neighbours", "rounds", "vectors per node, both ways"),
            [
                (f"`{kind}`", neighbours(kind), f"{one['rounds']:,}", f"{one['vectors']:,.0f}")
                for kind, one in zip(TOPOLOGIES, found["topologies"], strict=True)
            ],
        ),
    )
    header = ("`mu`", *(f"{mu:g}" for mu in STRENGTHS))
    yield "fast-fedda", table(header, [("distance", *distances(found["mu"]))])
    columns = [(f"β = {beta:g}: to f + h", "to f + 2h", "not 0") for beta in MODE_STEPS]
    cells = [
        (short(one["distance"]), short(one["to f + 2h"]), str(one["not 0"]))
        for one in found["modes"]
    ]
    rows = [(mode, *sum(line, ())) for mode, line in zip(MODES, by(2, cells), strict=True)]
    yield "fedmid", table(("mode", *sum(columns, ())), rows)
    lines = zip(SKIPS, by(len(ETAS), distances(found["skips"])), strict=True)
    yield (
        "fedpd",
        table(
            ("", *(f"η = {eta:g}" for eta in ETAS)),
            [(f"`skip = {skip:g}`", *line) for skip, line in lines],
        ),
    )
    yield (
        "proxskip",
        table(
            ("p", *(f"{p:g}" for p in PROBABILITIES)),
            [
                (label, *(f"{one[key]:,}" for one in found["probabilities"]))
                for label, key in (("iterations", "rounds"), ("prox calls", "prox"))
            ],
        ),
    )


def by(count: int, cells: Sequence[Any]) -> list[Sequence[Any]]:
    """The cells in lines of so many."""
    return [cells[start : start + count] for start in range(0, len(cells), count)]


def neighbours(topology: str) -> str:
    """The least and the largest number of neighbours of a node."""
    degrees = DecentralisedProxSkip(topology=topology).mixing(NODES).degrees
    least, most = min(degrees), max(degrees)
    return str(least) if least == most else f"{least} to {most}"


def sentences(found: Any) -> Iterator[tuple[str, str]]:
    """What pages say of these runs: the page and the words."""
    (half,), star = found["half way"], found["topologies"][0]
    yield (
        "decentralised-proxskip",
        f"In a star χ = ½ is faster ({half['rounds']} rounds instead of {star['rounds']})",
    )
    yield (
        "fast-fedda",
        ", ".join(distances(found["fast-fedda by rounds"]))
        + " after 100, 1,000, 4,000 rounds with μ = 0.1",
    )
    yield (
        "fast-fedda",
        "after 1,000 rounds {} with `power = 1`, {} with `power = 2`".format(
            *distances(found["power"])
        ),
    )
    (partly,) = distances(found["fast-fedda, 2 of 5"])
    yield "fast-fedda", f"leave an error: {partly} with 2 of 5 and μ = 0.1"
    large, small, single, sampled = distances(found["fedda"])
    yield (
        "fedda",
        f"{large} for β = 0.05 and {small} for β = 0.005 (4,000 rounds), and {single} for β = 0.05 "
        "and K = 1 (8,000 rounds)",
    )
    yield "fedda", f"{sampled} with 2 of 5 clients and β = 0.1"
    yield "index", f"PGD solves it in {found['pgd'][0]['rounds']} rounds"
    worst = max(one["norm"] for one in found["weakly convex"])
    yield "za1", f"‖G‖ falls to {digit(worst)} in 1,500 rounds"
    fate = "diverges" if found["too large a beta"][0].get("diverged") else "does not diverge"
    yield "fedpd", f"With η = 0.1 and β = 0.5 the example below {fate}"
    (rounded,), first = found["proxskip to rounding"], found["probabilities"][0]
    yield (
        "proxskip",
        f"a run of 1,000 rounds with p = 0.3 ended {short(rounded['distance'])} from the minimiser "
        f"with {rounded['not 0']} entries other than 0 where it has {first['not 0']}",
    )
