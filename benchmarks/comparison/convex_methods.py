"""The composite methods on the convex suite, each with a grid of nine points around "auto"."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

from fedcanon.algorithms import Facts

K = 10
"""Local steps of every method that takes some."""

Table = dict[str, Any]
Grid = Callable[[Facts], list[Table]]


def fedcanon_plus(facts: Facts) -> list[Table]:
    """Four β with the step of the server as long as "auto" allows it, three with 4βK, two plain."""
    limit = 0.9 / facts.rho if facts.rho else 1e4 / facts.L

    def point(part: float, times: float, *, accelerated: bool) -> Table:
        beta = part / facts.L
        alpha = min(limit, times * beta * K)
        return {"beta": beta, "alpha": alpha, "accelerated": accelerated}

    longest = [point(part, 1e9, accelerated=True) for part in (0.1, 0.25, 0.5, 1.0)]
    shorter = [point(part, 4.0, accelerated=True) for part in (0.25, 0.5, 1.0)]
    return longest + shorter + [point(part, 1.0, accelerated=False) for part in (0.25, 1.0)]


def fedcanon(facts: Facts) -> list[Table]:
    limit = 0.9 / facts.rho if facts.rho else float("inf")
    betas = [part / facts.L for part in (0.1, 0.3, 1.0)]
    return [
        {"beta": beta, "alpha": min(limit, times * beta * K)}
        for beta, times in product(betas, (0.5, 1.0, 2.0))
    ]


def with_beta(parts: tuple[float, ...], name: str, values: tuple[Any, ...]) -> Grid:
    """Return a grid of β = part/L and of the method's own parameter."""

    def grid(facts: Facts) -> list[Table]:
        return [{"beta": part / facts.L, name: value} for part, value in product(parts, values)]

    return grid


def splitting(power: int) -> Grid:
    """Return a grid of η = (times/L)^power and of the relaxation, with β by theory."""

    def grid(facts: Facts) -> list[Table]:
        longest = 0.9 / facts.rho if facts.rho else float("inf")
        steps = [min(longest, times / facts.L) for times in (1, 10, 100)]
        return [
            {"eta": step**power, "relaxation": relaxation}
            for step, relaxation in product(steps, (1.0, 1.5, 1.9))
        ]

    return grid


def pgd(facts: Facts) -> list[Table]:
    return [{"alpha": times / facts.L} for times in (0.5, 0.7, 1, 1.5, 2, 3, 5, 8, 13)]


LOCAL = {"local_steps": K}
METHODS: dict[str, tuple[Table, Grid | None]] = {
    "newton": ({"name": "newton"}, None),
    "FedCanon+": ({"name": "fedcanon+", **LOCAL}, fedcanon_plus),
    "FedCanon": ({"name": "fedcanon", **LOCAL}, fedcanon),
    "FedMiD": (
        {"name": "fedmid", **LOCAL},
        with_beta((0.01, 0.1, 1.0), "server_prox", ("published", "per_step", "none")),
    ),
    "FedDA": (
        {"name": "fedda", **LOCAL},
        with_beta((0.01, 0.1, 1.0), "server_step", (0.5, 1.0, 2.0)),
    ),
    "Fast-FedDA": (
        {"name": "fast-fedda", **LOCAL},
        with_beta((0.05, 0.5, 2.0), "mu", (1e-4, 1e-3, 1e-2)),
    ),
    "ZA1": (
        {"name": "za1", **LOCAL},
        with_beta((0.1, 0.3, 1.0), "server_step", (0.5, 1.0, 2.0)),
    ),
    "FedDR": ({"name": "feddr", **LOCAL}, splitting(1)),
    "FedADMM": ({"name": "fedadmm", **LOCAL}, splitting(-1)),
    "ProxSkip": (
        {"name": "proxskip", **LOCAL},
        with_beta((1.0, 3.0, 10.0), "probability", (0.1, 0.3, 1.0)),
    ),
    "PGD": ({"name": "pgd"}, pgd),
}
"""Every composite method but FedCanon II, which has the iterates of FedCanon, with its grid."""

OURS = {"newton", "FedCanon+"}
"""The methods that the targets are about."""

ONE_STEP = "FedCanon+, K = 1"
BEFORE = "FedCanon+, α = 1/L"
FISTA = "FISTA"
"""The yardsticks of the targets."""


def before(facts: Facts) -> Table:
    """The steps that "auto" meant before: α = min(1/L, 1/(2ρ)), β = 1/(KL), no acceleration."""
    alpha = min(1 / facts.L, 0.5 / facts.rho) if facts.rho else 1 / facts.L
    steps = {"alpha": alpha, "beta": 1 / (K * facts.L)}
    return {"name": "fedcanon+", **LOCAL, **steps, "accelerated": False, "gain": "off"}
