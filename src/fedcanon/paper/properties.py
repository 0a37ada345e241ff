"""Table II: what each method can do, measured instead of cited.

Every column of the paper's table is a measurement on small problems in double precision with exact
gradients, on which a limit can be seen: quadratics of unlike clients, and the same with a wave that
makes them non-convex.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcanon.algorithms import Algorithm
from fedcanon.engines import Rules
from fedcanon.engines.work import ClientWork, CountedProx
from fedcanon.errors import FedcanonError
from fedcanon.layout import Layout
from fedcanon.objectives import Objective, Problem, Quadratic
from fedcanon.paper.methods import make_method, run_rounds, spent_per_round
from fedcanon.paper.outcome import Claim, Outcome, Scale, Table, judged
from fedcanon.paper.quadratics import minimiser, unlike_matrix
from fedcanon.paper.trials import Trainer
from fedcanon.penalties import L1, MCP, Penalty, Zero
from fedcanon.randomness import Purpose, generator
from fedcanon.runs import Federation
from fedcanon.runs.measures import stationarity

COLUMNS = ("composite", "non-convex", "prox", "unlike data", "no subproblem", "linear")
PROVEN = ("non-convex", "linear")
"""The columns in which ✗ says that there is no proof, which no measurement can contradict."""
CUTS = {"to f + h": 0.5, "‖G‖ left": 0.05, "to FedAvg": 0.5, "contraction": 0.05}
"""A method has a property if the number that was measured for it is below this one."""


PAPER = {
    "FedAvg-M": "✗✓✗✓✓✗",
    "SCAFFOLD": "✗✓✗✓✓✓",
    "ProxSkip": "✓✗✓✓✓✓",
    "SCAFFNEW": "✗✗✗✓✓✓",
    "Guo et al.": "✗✓✗✓✓✓",
    "FedMiD": "✓✗✗✗✓✗",
    "FedDA": "✓✗✗✗✓✗",
    "Fast-FedDA": "✓✗✗✗✓✗",
    "ZA1": "✓✗✗✓✓✓",
    "FedPD": "✗✓✗✓✗✗",
    "FedDyn": "✗✓✗✓✗✓",
    "FedDR": "✓✓✓✓✗✗",
    "FedADMM": "✓✓✓✓✗✗",
    "FedCanon": "✓✓✓✓✓✓",
    "FedCanon+": "······",
}
"""The paper's table: ✓ or ✗ for each column; · where the paper has no row."""
STEPS: dict[str, dict[str, Any]] = {
    "ProxSkip": {"beta": 0.5, "probability": 0.5},
    "Guo et al.": {"topology": "complete"},
    "Fast-FedDA": {"mu": 0.1},
    "FedPD": {"beta": 0.4},
    "FedDyn": {"beta": 0.4},
    "FedDR": {"beta": 0.4},
    "FedADMM": {"beta": 0.4},
    "FedCanon": {"alpha": 0.5},
    "FedCanon+": {"alpha": 0.5},
}
"""What a method needs for L = 1 beside β = 0.05, or in its place."""


def _make(method: str, local_steps: int) -> Algorithm:
    own = {"beta": 0.05, "local_steps": local_steps, **STEPS.get(method, {})}
    return make_method(method, **own)


@dataclass(frozen=True)
class Sizes:
    """How large the problems are and how long they are run, and κ of ℓ1 and MCP."""

    clients: int = 5
    dimension: int = 10
    local_steps: int = 10
    rounds: int = 1200
    kappa: float = 0.3


SETTINGS = {
    Scale.smoke: Sizes(rounds=60),
    Scale.laptop: Sizes(),
    Scale.paper: Sizes(rounds=6000),
}


@dataclass(frozen=True)
class Wave(Objective):
    """½ (x − b)ᵀ A (x − b) + Σ_j cos(2x_j)/8, which is not convex where A is flat."""

    quadratic: Quadratic

    samples = 1

    @property
    def layout(self) -> Layout:  # type: ignore[override]
        """The layout of the quadratic."""
        return self.quadratic.layout

    def value(self, x: Tensor) -> float:
        return self.quadratic.value(x) + float(torch.cos(2 * x).sum()) / 8

    def value_and_gradient(self, x: Tensor) -> tuple[float, Tensor]:
        return self.value(x), self.gradient(x)

    def gradient(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        return self.quadratic.gradient(x) - torch.sin(2 * x) / 4


class RecordingWork(ClientWork):
    """A client that remembers whether it was asked to solve a subproblem."""

    solved = False

    def solve(self, centre: Tensor, eta: float, start: Tensor, **how: Any) -> Tensor:
        """Solve it as every client does, and remember."""
        self.solved = True
        return super().solve(centre, eta, start, **how)


@dataclass(frozen=True)
class Measures:
    """What was seen of one method.

    ``composite``: distance to argmin f + h over that of argmin f; ``stationarity``: final over
    initial ‖G‖ where f is not convex and h is MCP, infinite where the method refuses; ``prox``:
    prox per round for K and 4K local steps; ``unlike``: distance to argmin f over that of FedAvg;
    ``solves``: whether a client solves a subproblem; ``contraction``: how much nearer to its own
    limit the method comes in the second quarter of its rounds.
    """

    composite: float
    stationarity: float
    prox: tuple[float, float]
    unlike: float
    solves: bool
    contraction: float

    @property
    def entries(self) -> str:
        """✓ or ✗ for each column of the table."""
        efficient = self.prox[0] > 0 and self.prox[1] == self.prox[0]
        found = (
            self.composite < CUTS["to f + h"],
            self.stationarity < CUTS["‖G‖ left"],
            efficient,
            self.unlike < CUTS["to FedAvg"],
            not self.solves,
            self.contraction < CUTS["contraction"],
        )
        return "".join("✓" if entry else "✗" for entry in found)


@dataclass(frozen=True)
class Known:
    """The problem, the minimisers of f and of f + h, and where FedAvg ends on f."""

    problem: Problem
    smooth: Tensor
    composite: Tensor
    fedavg: Tensor

    @classmethod
    def of(cls, sizes: Sizes) -> Known:
        """Find all of it for a problem of some size."""
        problem = _quadratics(sizes)
        smooth, composite = (minimiser(problem, h, 0.9) for h in (Zero(), L1(sizes.kappa)))
        fedavg = Federation(problem, _make("FedAvg", sizes.local_steps), Zero())
        return cls(problem, smooth, composite, run_rounds(fedavg, sizes.rounds))


def run(scale: Scale, trainer: Trainer) -> Iterator[Outcome]:
    """Measure every column for every method."""
    sizes = SETTINGS[scale]
    known = Known.of(sizes)
    found = {}
    with trainer.watch.steps("methods", len(PAPER)) as done:
        for method in PAPER:
            found[method] = _measure(sizes, known, method)
            done()
    yield Outcome(
        title="Table II · properties of the methods, measured",
        scale=scale,
        settings={**asdict(sizes), "cuts": CUTS},
        tables=[_entries(found), _numbers(found)],
        claims=judged(scale, _claims(found)),
        data={method: asdict(measures) for method, measures in found.items()},
        notes=[
            "an entry is ours, with the paper's in brackets where it differs. The paper's ✗ under "
            "non-convex and linear means that there is no proof, not that the method fails.",
            "a method that ignores h is ✗ under composite and under prox.",
        ],
    )


def _quadratics(sizes: Sizes) -> Problem:
    """Unlike clients with eigenvalues between 0.1 and 1."""
    rng = np.random.default_rng(0)
    d = sizes.dimension
    clients = [
        Quadratic(unlike_matrix(rng, d, 0.1), torch.from_numpy(3 * rng.standard_normal(d)))
        for _ in range(sizes.clients)
    ]
    return Problem(clients, torch.from_numpy(rng.standard_normal(d)))


def _waves(problem: Problem) -> Problem:
    """The same clients, each with a wave."""
    waves = [Wave(client) for client in problem.clients if isinstance(client, Quadratic)]
    return Problem(waves, problem.start)


def _measure(sizes: Sizes, known: Known, method: str) -> Measures:
    problem, K = known.problem, sizes.local_steps
    algorithm = _make(method, K)
    quarter, half = sizes.rounds // 4, sizes.rounds // 2
    federation = Federation(problem, algorithm, L1(sizes.kappa))
    early, middle, last = (
        run_rounds(federation, rounds) for rounds in (quarter, half - quarter, sizes.rounds - half)
    )
    rest = float((middle - last).norm()) / max(float((early - last).norm()), 1e-300)
    settled = float((early - last).norm()) < 1e-9  # is there already, to rounding
    without_h = run_rounds(Federation(problem, algorithm, Zero()), sizes.rounds)
    few, many = (Federation(problem, _make(method, k), L1(0.1)) for k in (K, 4 * K))
    return Measures(
        composite=float((last - known.composite).norm() / (known.smooth - known.composite).norm()),
        stationarity=_stationarity(sizes, problem, algorithm),
        prox=(spent_per_round(few, 20).prox, spent_per_round(many, 20).prox),
        unlike=float((without_h - known.smooth).norm() / (known.fedavg - known.smooth).norm()),
        solves=_solves(problem, algorithm),
        contraction=0.0 if settled else rest,
    )


def _stationarity(sizes: Sizes, problem: Problem, algorithm: Algorithm) -> float:
    """Final over initial ‖G‖ of what the method minimises, on the waves with MCP."""
    waves = _waves(problem)
    penalty: Penalty = Zero() if algorithm.solves == "f" else MCP(sizes.kappa, gamma=1.0)
    try:
        penalty.check_step(algorithm.prox_step(sizes.rounds))
        federation = Federation(waves, algorithm, penalty)
    except FedcanonError:  # its prox would leave the domain of a weakly convex h
        return math.inf

    def norm(z: Tensor) -> float:
        return stationarity(penalty, z, waves.value_and_gradient(z)[1], 0.5)

    return norm(run_rounds(federation, sizes.rounds)) / norm(problem.start)


def _solves(problem: Problem, algorithm: Algorithm) -> bool:
    penalty = L1(0.1)
    prox = CountedProx(penalty)
    work = RecordingWork(Rules(algorithm, penalty), problem.clients[0], prox, 0, 0)
    server = algorithm.server_init(problem.start, prox)
    received = algorithm.broadcast(server, 0, generator(0, Purpose.COINS))
    algorithm.local(algorithm.client_init(problem.start), received, work)
    return work.solved


def _entries(found: dict[str, Measures]) -> Table:
    rows = []
    for method, measures in found.items():
        pairs = zip(measures.entries, PAPER[method], strict=True)
        cells = [ours if paper in (ours, "·") else f"{ours} ({paper})" for ours, paper in pairs]
        rows.append((method, *cells))
    caption = "Measured entries; in brackets the paper's where it differs."
    return Table(caption, ("", *COLUMNS), rows)


def _numbers(found: dict[str, Measures]) -> Table:
    rows = [
        (
            name,
            f"{m.composite:.2g}",
            "refused" if math.isinf(m.stationarity) else f"{m.stationarity:.1e}",
            f"{m.prox[0]:g} / {m.prox[1]:g}",
            f"{m.unlike:.1e}",
            "yes" if m.solves else "no",
            f"{m.contraction:.1e}",
        )
        for name, m in found.items()
    ]
    head = ("", "to f + h", "‖G‖ left", "prox K / 4K", "to FedAvg", "solves", "contraction")
    cuts = ", ".join(f"{cut:g} ({name})" for name, cut in CUTS.items())
    caption = (
        "The numbers behind them: distance to argmin f + h over that of argmin f; "
        "‖G‖ left of its start where f and h are not convex; prox per round; "
        "distance to argmin f over FedAvg's; subproblems; change of the distance to the limit. "
        f"✓ is below {cuts}."
    )
    return Table(caption, head, rows)


def _claims(found: dict[str, Measures]) -> list[Claim]:
    claims = []
    tested = [column for column in COLUMNS if column not in PROVEN]
    for entry, claim, columns in (
        ("✓", "what the table grants a method (✓), it has", COLUMNS),
        ("✗", f"what it denies a method (✗), it lacks ({', '.join(tested)})", tested),
    ):
        printed = [
            (f"{method} {column}", ours)
            for method, measures in found.items()
            for column, ours, paper in zip(COLUMNS, measures.entries, PAPER[method], strict=True)
            if paper == entry and column in columns
        ]
        against = [what for what, ours in printed if ours != entry]
        measured = f"{len(printed) - len(against)} of {len(printed)} entries; not so: "
        claims.append(Claim(claim, measured + (", ".join(against) or "none"), not against))
    return claims
