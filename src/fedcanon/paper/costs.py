"""Table III: prox computations and floats per round, counted while every method runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fedcanon.algorithms import (
    PGD,
    ZA1,
    Algorithm,
    FastFedDA,
    FedADMM,
    FedCanon,
    FedCanonII,
    FedCanonPlus,
    FedDA,
    FedDR,
    FedMiD,
    ProxSkip,
)
from fedcanon.paper.outcome import Claim, Outcome, Table
from fedcanon.paper.scales import Scale
from fedcanon.paper.trials import Trainer
from fedcanon.randomness import Purpose, generator
from fedcanon.runs.build import build_problem
from fedcanon.runs.config import load_config
from fedcanon.runs.federation import Federation
from fedcanon.runs.named import make_penalty

CLIENTS, SAMPLED, LOCAL_STEPS, ROUNDS = 10, 3, 5, 8


def run(scale: Scale, trainer: Trainer) -> Iterator[Outcome]:
    """Count for every composite method; the same at every scale."""
    with trainer.watch.steps("every composite method", len(methods())) as done:
        found = []
        for cost in costs():
            found.append(cost)
            done()
    published = [cost for cost in found if cost.method.in_paper]
    agreeing = [cost for cost in published if cost.agrees]
    yield Outcome(
        item="costs",
        title="Table III · prox computations and floats per round, counted on digits with ℓ1",
        scale=scale,
        settings={"N": CLIENTS, "|S|": SAMPLED, "K": LOCAL_STEPS, "rounds": ROUNDS},
        tables=[_table(found)],
        claims=[
            Claim(
                "prox computations and floats of a round are those of Table III",
                f"the counts of {len(agreeing)} of its {len(published)} methods are those of the "
                "formulas; FedCanon+ spends 1 prox and 2d floats",
                len(agreeing) == len(published),
            ),
            _down(found),
        ],
        data={cost.method.name: {"prox": cost.prox, "floats per d": cost.floats} for cost in found},
        notes=["methods with a star are not in the paper's table; rounds t ≥ 1 are counted."],
    )


def _down(found: list[Cost]) -> Claim:
    down = {cost.method.name: cost.floats_down for cost in found}
    first, second = down["FedCanon"], down["FedCanon II"]
    return Claim(
        "FedCanon II reduces what the server sends by one third",
        f"from {first:g}d to {second:g}d floats per client, by {1 - second / first:.0%}; a third "
        "is what both directions save together",
        abs(second / first - 2 / 3) < 0.01,
    )


def _table(found: list[Cost]) -> Table:
    rows = [
        (
            cost.method.name if cost.method.in_paper else f"{cost.method.name} *",
            cost.method.prox_formula,
            f"{cost.method.prox:.4g}",
            f"{cost.prox:.4g}",
            f"{cost.method.floats:g}",
            f"{cost.floats:.4g}",
            "✓" if cost.agrees else "✗",
        )
        for cost in found
    ]
    head = ("", "prox per round", "formula", "counted", "floats/d", "counted", "")
    caption = f"N = {CLIENTS}, K = {LOCAL_STEPS}, |S| = {SAMPLED} where clients are sampled."
    return Table(caption, head, rows)


@dataclass(frozen=True)
class Method:
    """A composite method, and its cost in a round t ≥ 1 by the formulas.

    ``floats`` are those of one participant in both directions, in units of d. Methods that allow
    sampling and whose cost depends on it run with 3 of 10 clients.
    """

    name: str
    algorithm: Algorithm
    prox_formula: str
    prox: float
    floats: float
    participants: int = CLIENTS
    in_paper: bool = True


@dataclass(frozen=True)
class Cost:
    """What a method was seen to spend per round, in the units of its formulas."""

    method: Method
    prox: float
    floats: float
    floats_down: float
    """Those from the server."""

    @property
    def agrees(self) -> bool:
        """Whether the counts are those of the formulas."""
        return (self.prox, self.floats) == (self.method.prox, self.method.floats)


def methods() -> list[Method]:
    """Every composite method: first those of the paper's table, then the others."""
    N, S, K = CLIENTS, SAMPLED, LOCAL_STEPS
    beta, p = 0.02, 0.5
    coins = [generator(0, Purpose.COINS, t).random() < p for t in range(1, ROUNDS)]
    return [
        Method("FedCanon", FedCanon(beta=beta, local_steps=K), "1", 1, 3),
        Method("FedCanon II", FedCanonII(beta=beta, local_steps=K), "N", N, 2),
        Method("FedMiD", FedMiD(beta=beta, local_steps=K), "|S|K + 1", S * K + 1, 2, S),
        Method("FedDA", FedDA(beta=beta, local_steps=K), "|S|K + 1", S * K + 1, 2, S),
        Method("Fast-FedDA", FastFedDA(beta=beta, local_steps=K), "NK + 1", N * K + 1, 4),
        Method("ZA1", ZA1(beta=beta, local_steps=K), "N(K + 1) + 1", N * (K + 1) + 1, 2),
        Method("FedCanon+", FedCanonPlus(beta=beta, local_steps=K), "1", 1, 2, in_paper=False),
        Method("FedDR", FedDR(beta=beta, local_steps=K), "1", 1, 2, S, in_paper=False),
        Method("FedADMM", FedADMM(beta=beta, local_steps=K), "1", 1, 2, S, in_paper=False),
        Method(
            "ProxSkip",
            ProxSkip(beta=beta, probability=p),
            f"p = {sum(coins)}/{len(coins)} coins",
            sum(coins) / len(coins),
            2,
            in_paper=False,
        ),
        Method("PGD", PGD(beta), "1", 1, 2, in_paper=False),
    ]


def costs() -> Iterator[Cost]:
    """Run every method on digits with ℓ1 and count what it spends after its first round."""
    config = load_config(settings=["model.name=linear", f"clients.count={CLIENTS}"])
    problem = build_problem(config)
    penalty = make_penalty({"name": "l1", "kappa": 1e-4}, problem.layout)
    for method in methods():
        participants = method.participants
        federation = Federation(
            problem, method.algorithm, penalty, participants=participants, batch_size=32
        )
        federation.step()
        first = _counts(federation)
        for _ in range(1, ROUNDS):
            federation.step()
        pairs = zip(_counts(federation), first, strict=True)
        prox, down, up = (now - before for now, before in pairs)
        messages = (ROUNDS - 1) * participants * len(problem.start)
        yield Cost(method, prox / (ROUNDS - 1), (down + up) / messages, down / messages)


def _counts(federation: Federation) -> tuple[int, int, int]:
    """Prox computations, floats from the server and floats to it."""
    cost = federation.cost
    return cost.server_prox + cost.client_prox, cost.floats_down, cost.floats_up
