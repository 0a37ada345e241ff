"""The methods by the names that the paper gives them, and what it takes to run some rounds."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, NamedTuple

from torch import Tensor

from fedcanon.algorithms import ALGORITHMS, Algorithm
from fedcanon.runs import Federation
from fedcanon.runs.config import Table
from fedcanon.runs.named import make_algorithm

TIMED = ("FedCanon", "FedCanon+", "FedMiD", "FedDA", "ZA1")
"""The methods for f + h of Figure 3 and Table V, which compare their times."""
TIMED_BASELINES = TIMED[2:]
"""Those among them that FedCanon is compared with."""
DAMPED = "damped FedCanon+"
"""FedCanon+ whose local steps use only a part of the correction until steps are small."""


def registered(method: str) -> str:
    """The name of a method in a configuration: the paper's in small letters, but for three."""
    others = {
        "FedCanon II": "fedcanon2",
        "Guo et al.": "decentralised-proxskip",
        DAMPED: "fedcanon+",
    }
    return others.get(method, method.lower())


def as_published(method: str) -> Table:
    """The ``[algorithm]`` table of a method without what was added to it since: α is βK.

    The damped FedCanon+ has its automatic gain, which is a quarter of the first βK on networks.
    """
    known = {field.name for field in fields(ALGORITHMS[registered(method)])}  # type: ignore[arg-type]
    gain = "auto" if method == DAMPED else "off"
    plain = {"alpha": "beta*K", "gain": gain, "accelerated": False}
    return {"name": registered(method)} | {k: v for k, v in plain.items() if k in known}


def make_method(method: str, **steps: Any) -> Algorithm:
    """The method with these step sizes and other parameters."""
    return make_algorithm({"name": registered(method), **steps})


def run_rounds(federation: Federation, rounds: int) -> Tensor:
    """Run so many more rounds; the model after them."""
    for _ in range(rounds):
        federation.step()
    return federation.model


class Spent(NamedTuple):
    """What all clients and the server spend in a round: prox computations, and floats sent."""

    prox: float
    floats_down: float
    floats_up: float


def spent_per_round(federation: Federation, rounds: int) -> Spent:
    """The mean over so many rounds t ≥ 1; the very first, which may differ, does not count."""
    totals = []
    for further in (1, rounds):
        run_rounds(federation, further)
        cost = federation.cost
        totals.append((cost.server_prox + cost.client_prox, cost.floats_down, cost.floats_up))
    return Spent(*((after - before) / rounds for before, after in zip(*totals, strict=True)))
