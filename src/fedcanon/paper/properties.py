"""Table II: what each method can do, measured instead of cited.

Every column of the paper's table is a measurement on small problems in double precision with exact
gradients, on which a limit can be seen: quadratics of unlike clients, and the same with a wave that
makes them non-convex.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcanon.algorithms import (
    ZA1,
    Algorithm,
    DecentralisedProxSkip,
    FastFedDA,
    FedADMM,
    FedAvg,
    FedAvgM,
    FedCanon,
    FedCanonPlus,
    FedDA,
    FedDR,
    FedDyn,
    FedMiD,
    FedPD,
    ProxSkip,
    Scaffnew,
    Scaffold,
)
from fedcanon.engines import Rules
from fedcanon.engines.work import ClientWork, CountedProx
from fedcanon.errors import FedcanonError
from fedcanon.layout import Layout
from fedcanon.objectives import Objective, Problem, Quadratic
from fedcanon.paper.outcome import Claim, Outcome, Table, judged
from fedcanon.paper.quadratics import minimiser
from fedcanon.paper.scales import Scale
from fedcanon.paper.trials import Trainer
from fedcanon.penalties import L1, MCP, Penalty, Zero
from fedcanon.randomness import Purpose, generator
from fedcanon.runs import Federation
from fedcanon.runs.measures import stationarity

COLUMNS = ("composite", "non-convex", "prox", "unlike data", "no subproblem", "linear")
PROVEN = ("non-convex", "linear")
"""Where ✗ says that there is no proof, which no measurement can contradict."""
CUTS = {"to f + h": 0.5, "‖G‖ left": 0.05, "to FedAvg": 0.5, "contraction": 0.05}
"""A method has a property if its number is below."""


@dataclass(frozen=True)
class Method:
    """A method with steps for L = 1, and the paper's row: an entry for each column."""

    name: str
    algorithm: Callable[[int], Algorithm]
    """Made for a number of local steps."""
    paper: str
    """✓ or ✗ for each column; · where the paper has no row."""


METHODS = (
    Method("FedAvg-M", lambda K: FedAvgM(beta=0.05, local_steps=K), "✗✓✗✓✓✗"),
    Method("SCAFFOLD", lambda K: Scaffold(beta=0.05, local_steps=K), "✗✓✗✓✓✓"),
    Method("ProxSkip", lambda K: ProxSkip(beta=0.5, probability=0.5), "✓✗✓✓✓✓"),
    Method("SCAFFNEW", lambda K: Scaffnew(beta=0.05, local_steps=K), "✗✗✗✓✓✓"),
    Method(
        "Guo et al.",
        lambda K: DecentralisedProxSkip(beta=0.05, local_steps=K, topology="complete"),
        "✗✓✗✓✓✓",
    ),
    Method("FedMiD", lambda K: FedMiD(beta=0.05, local_steps=K), "✓✗✗✗✓✗"),
    Method("FedDA", lambda K: FedDA(beta=0.05, local_steps=K), "✓✗✗✗✓✗"),
    Method("Fast-FedDA", lambda K: FastFedDA(beta=0.05, local_steps=K, mu=0.1), "✓✗✗✗✓✗"),
    Method("ZA1", lambda K: ZA1(beta=0.05, local_steps=K), "✓✗✗✓✓✓"),
    Method("FedPD", lambda K: FedPD(beta=0.4, local_steps=K), "✗✓✗✓✗✗"),
    Method("FedDyn", lambda K: FedDyn(beta=0.4, local_steps=K), "✗✓✗✓✗✓"),
    Method("FedDR", lambda K: FedDR(beta=0.4, local_steps=K), "✓✓✓✓✗✗"),
    Method("FedADMM", lambda K: FedADMM(beta=0.4, local_steps=K), "✓✓✓✓✗✗"),
    Method("FedCanon", lambda K: FedCanon(0.5, beta=0.05, local_steps=K), "✓✓✓✓✓✓"),
    Method("FedCanon+", lambda K: FedCanonPlus(0.5, beta=0.05, local_steps=K), "······"),
)


@dataclass(frozen=True)
class Setting:
    """Five clients in ten dimensions, eigenvalues between 0.1 and 1."""

    clients: int = 5
    dimension: int = 10
    local_steps: int = 10
    rounds: int = 1200
    kappa: float = 0.3


SETTINGS = {
    Scale.smoke: Setting(rounds=60),
    Scale.laptop: Setting(),
    Scale.paper: Setting(rounds=6000),
}


@dataclass(frozen=True)
class Wave(Objective):
    """½ (x − b)ᵀ A (x − b) + Σ_j cos(2x_j)/8, which is not convex where A is flat."""

    quadratic: Quadratic

    samples = 1

    @property
    def layout(self) -> Layout:  # type: ignore[override]
        """That of the quadratic."""
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
        """As every client, and remember."""
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
    def of(cls, setting: Setting) -> Known:
        """All of it for a setting."""
        problem = _quadratics(setting)
        fedavg = _limit(problem, FedAvg(beta=0.05, local_steps=setting.local_steps), setting)
        composite = minimiser(problem, L1(setting.kappa), 0.9)
        return cls(problem, minimiser(problem, Zero(), 0.9), composite, fedavg)


def run(scale: Scale, trainer: Trainer) -> Iterator[Outcome]:
    """Measure every column for every method."""
    setting = SETTINGS[scale]
    known = Known.of(setting)
    found = {}
    with trainer.watch.steps("methods", len(METHODS)) as done:
        for method in METHODS:
            found[method.name] = _measure(setting, known, method)
            done()
    yield Outcome(
        item="properties",
        title="Table II · properties of the methods, measured",
        scale=scale,
        settings={**asdict(setting), "cuts": CUTS},
        tables=[_entries(found), _numbers(found)],
        claims=judged(scale, _claims(found)),
        data={name: asdict(measures) for name, measures in found.items()},
        notes=[
            "an entry is ours, with the paper's in brackets where it differs. The paper's ✗ under "
            "non-convex and linear means that there is no proof, not that the method fails.",
            "a method that ignores h is ✗ under composite and under prox.",
        ],
    )


def _quadratics(setting: Setting) -> Problem:
    rng = np.random.default_rng(0)
    d, clients = setting.dimension, []
    for _ in range(setting.clients):
        basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
        A = basis @ np.diag(np.linspace(0.1, 1, d)) @ basis.T
        centre = torch.from_numpy(3 * rng.standard_normal(d))
        clients.append(Quadratic(torch.from_numpy((A + A.T) / 2), centre))
    return Problem(clients, torch.from_numpy(rng.standard_normal(d)))


def _waves(problem: Problem) -> Problem:
    waves = [Wave(client) for client in problem.clients if isinstance(client, Quadratic)]
    return Problem(waves, problem.start)


def _limit(problem: Problem, algorithm: Algorithm, setting: Setting) -> Tensor:
    federation = Federation(problem, algorithm, Zero())
    for _ in range(setting.rounds):
        federation.step()
    return federation.model


def _measure(setting: Setting, known: Known, method: Method) -> Measures:
    problem, K = known.problem, setting.local_steps
    algorithm = method.algorithm(K)
    federation = Federation(problem, algorithm, L1(setting.kappa))
    quarters = []
    for t in range(1, setting.rounds + 1):
        federation.step()
        if t in (setting.rounds // 4, setting.rounds // 2, setting.rounds):
            quarters.append(federation.model)
    early, middle, last = quarters
    rest = float((middle - last).norm()) / max(float((early - last).norm()), 1e-300)
    settled = float((early - last).norm()) < 1e-9  # is there already, to rounding
    unlike = _limit(problem, algorithm, setting) - known.smooth
    return Measures(
        composite=float((last - known.composite).norm() / (known.smooth - known.composite).norm()),
        stationarity=_stationarity(setting, problem, algorithm),
        prox=(_prox_calls(problem, method, K), _prox_calls(problem, method, 4 * K)),
        unlike=float(unlike.norm() / (known.fedavg - known.smooth).norm()),
        solves=_solves(problem, algorithm),
        contraction=0.0 if settled else rest,
    )


def _stationarity(setting: Setting, problem: Problem, algorithm: Algorithm) -> float:
    """Final over initial ‖G‖ of what the method minimises, on the waves with MCP."""
    waves = _waves(problem)
    penalty: Penalty = Zero() if algorithm.solves == "f" else MCP(setting.kappa, gamma=1.0)
    try:
        penalty.check_step(algorithm.prox_step(setting.rounds))
        federation = Federation(waves, algorithm, penalty)
    except FedcanonError:  # its prox would leave the domain of a weakly convex h
        return math.inf

    def norm(z: Tensor) -> float:
        return stationarity(penalty, z, waves.value_and_gradient(z)[1], 0.5)

    for _ in range(setting.rounds):
        federation.step()
    return norm(federation.model) / norm(problem.start)


def _prox_calls(problem: Problem, method: Method, local_steps: int) -> float:
    """Prox computations of a round t ≥ 1, on the server and on all clients."""
    federation = Federation(problem, method.algorithm(local_steps), L1(0.1))
    counts = []
    for _ in range(21):
        federation.step()
        counts.append(federation.cost.server_prox + federation.cost.client_prox)
    return (counts[-1] - counts[0]) / (len(counts) - 1)


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
    for method in METHODS:
        pairs = zip(found[method.name].entries, method.paper, strict=True)
        cells = [
            ours if ours == paper or paper == "·" else f"{ours} ({paper})" for ours, paper in pairs
        ]
        rows.append((method.name, *cells))
    return Table(
        "Measured entries; in brackets the paper's where it differs.", ("", *COLUMNS), rows
    )


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
    caption = "The numbers behind them: distance to argmin f + h over that of argmin f; "
    caption += "‖G‖ left of its start where f and h are not convex; prox per round; "
    caption += (
        "distance to argmin f over FedAvg's; subproblems; change of the distance to the limit. "
        f"✓ is below {', '.join(f'{cut:g} ({name})' for name, cut in CUTS.items())}."
    )
    return Table(caption, head, rows)


def _claims(found: dict[str, Measures]) -> list[Claim]:
    claims = []
    tested = [column for column in COLUMNS if column not in PROVEN]
    for entry, other, claim, columns in (
        ("✓", "✗", "what the table grants a method (✓), it has", COLUMNS),
        ("✗", "✓", f"what it denies a method (✗), it lacks ({', '.join(tested)})", tested),
    ):
        printed = [
            (f"{method.name} {column}", ours)
            for method in METHODS
            for column, ours, paper in zip(
                COLUMNS, found[method.name].entries, method.paper, strict=True
            )
            if paper == entry and column in columns
        ]
        against = [what for what, ours in printed if ours == other]
        measured = f"{len(printed) - len(against)} of {len(printed)} entries; not so: "
        claims.append(Claim(claim, measured + (", ".join(against) or "none"), not against))
    return claims
