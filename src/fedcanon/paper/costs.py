"""Table III: prox computations and floats per round, counted while every method runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fedcanon.objectives import Problem
from fedcanon.paper.methods import make_method, spent_per_round
from fedcanon.paper.outcome import Claim, Outcome, Scale, Table
from fedcanon.paper.trials import Trainer
from fedcanon.randomness import Purpose, generator
from fedcanon.runs.build import build_problem
from fedcanon.runs.config import load_config
from fedcanon.runs.federation import Federation
from fedcanon.runs.named import make_penalty

N, S, K = 10, 3, 5
"""Clients, those of them that take part in a round where they are sampled, and local steps."""
ROUNDS = 8
BETA, PROBABILITY = 0.02, 0.5
COINS = [generator(0, Purpose.COINS, t).random() < PROBABILITY for t in range(1, ROUNDS)]
"""What ProxSkip draws in the rounds t ≥ 1: whether it calls the prox."""


@dataclass(frozen=True)
class Formulas:
    """What a round t ≥ 1 of a method costs by the formulas.

    ``floats`` are those of one participant in both directions, in units of d. Methods that allow
    sampling and whose cost depends on it run with 3 of 10 clients.
    """

    method: str
    prox_formula: str
    prox: float
    floats: float
    participants: int = N


PUBLISHED = (
    Formulas("FedCanon", "1", 1, 3),
    Formulas("FedCanon II", "N", N, 2),
    Formulas("FedMiD", "|S|K + 1", S * K + 1, 2, S),
    Formulas("FedDA", "|S|K + 1", S * K + 1, 2, S),
    Formulas("Fast-FedDA", "NK + 1", N * K + 1, 4),
    Formulas("ZA1", "N(K + 1) + 1", N * (K + 1) + 1, 2),
)
"""The methods of the paper's table."""
OTHERS = (
    Formulas("FedCanon+", "1", 1, 2),
    Formulas("FedDR", "1", 1, 2, S),
    Formulas("FedADMM", "1", 1, 2, S),
    Formulas("ProxSkip", f"p = {sum(COINS)}/{len(COINS)} coins", sum(COINS) / len(COINS), 2),
    Formulas("PGD", "1", 1, 2),
)
STEPS = {"ProxSkip": {"beta": BETA, "probability": PROBABILITY}, "PGD": {"alpha": BETA}}
"""The steps of the methods that do not take K local steps."""


@dataclass(frozen=True)
class Cost:
    """What a method was seen to spend per round, in the units of its formulas."""

    formulas: Formulas
    prox: float
    floats: float
    floats_down: float
    """The part of the floats that the server sends."""

    @property
    def agrees(self) -> bool:
        """Whether the counts are those of the formulas."""
        return (self.prox, self.floats) == (self.formulas.prox, self.formulas.floats)


def run(scale: Scale, trainer: Trainer) -> Iterator[Outcome]:
    """Count for every composite method on digits with ℓ1; the same at every scale."""
    problem = build_problem(load_config(settings=["model.name=linear", f"clients.count={N}"]))
    found = {}
    with trainer.watch.steps("every composite method", len(PUBLISHED + OTHERS)) as done:
        for formulas in PUBLISHED + OTHERS:
            found[formulas.method] = _count(problem, formulas)
            done()
    agreeing = sum(found[formulas.method].agrees for formulas in PUBLISHED)
    yield Outcome(
        title="Table III · prox computations and floats per round, counted on digits with ℓ1",
        scale=scale,
        settings={"N": N, "|S|": S, "K": K, "rounds": ROUNDS},
        tables=[_table(list(found.values()))],
        claims=[
            Claim(
                "prox computations and floats of a round are those of Table III",
                f"the counts of {agreeing} of its {len(PUBLISHED)} methods are those of the "
                "formulas; FedCanon+ spends 1 prox and 2d floats",
                agreeing == len(PUBLISHED),
            ),
            _down(found["FedCanon"].floats_down, found["FedCanon II"].floats_down),
        ],
        data={
            method: {"prox": cost.prox, "floats per d": cost.floats}
            for method, cost in found.items()
        },
        notes=["methods with a star are not in the paper's table; rounds t ≥ 1 are counted."],
    )


def _count(problem: Problem, formulas: Formulas) -> Cost:
    method, participants = formulas.method, formulas.participants
    algorithm = make_method(method, **STEPS.get(method, {"beta": BETA, "local_steps": K}))
    penalty = make_penalty({"name": "l1", "kappa": 1e-4}, problem.layout)
    federation = Federation(problem, algorithm, penalty, participants=participants, batch_size=32)
    prox, down, up = spent_per_round(federation, ROUNDS - 1)
    one = participants * len(problem.start)
    return Cost(formulas, prox, (down + up) / one, down / one)


def _down(first: float, second: float) -> Claim:
    return Claim(
        "FedCanon II reduces what the server sends by one third",
        f"from {first:g}d to {second:g}d floats per client, by {1 - second / first:.0%}; a third "
        "is what both directions save together",
        abs(second / first - 2 / 3) < 0.01,
    )


def _table(found: list[Cost]) -> Table:
    rows = [
        (
            cost.formulas.method + ("" if cost.formulas in PUBLISHED else " *"),
            cost.formulas.prox_formula,
            f"{cost.formulas.prox:.4g}",
            f"{cost.prox:.4g}",
            f"{cost.formulas.floats:g}",
            f"{cost.floats:.4g}",
            "✓" if cost.agrees else "✗",
        )
        for cost in found
    ]
    head = ("", "prox per round", "formula", "counted", "floats/d", "counted", "")
    return Table(f"N = {N}, K = {K}, |S| = {S} where clients are sampled.", head, rows)
