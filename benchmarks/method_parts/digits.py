"""What each method reaches in the default run, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from comparison.journal import Journal
from comparison.tables import table
from rich.progress import Progress

from method_parts.default_run import command, megabytes, outcomes
from method_parts.names import NAMES, short

SETTINGS = ("evaluate.every=10",)
SPECS = {
    label: "za1:beta=0.1" if name == "za1" else name
    for name, label in NAMES.items()
    if name != "newton"  # for linear models
}
OTHERS = {
    "not accelerated": "fedcanon+:accelerated=false",
    "small steps": "fedcanon+:alpha=1.0,beta=0.1,gain=off,accelerated=false",
    "ZA1, auto": "za1",
    "FedMiD, 0.1": "fedmid:beta=0.1",
    "FedDR, 1": "feddr:eta=1.0,beta=0.1",
    "momentum": "fedavg:momentum=0.9,beta=0.1",
    "FedAdam, 0.01": "fedadam:server_step=0.01",
    "FedYogi, 0.01": "fedyogi:server_step=0.01",
}
"""Runs that only single pages speak of."""


def measure(journal: Journal, progress: Progress, *, smoke: bool) -> Any:
    """Every method, and what single pages speak of."""
    return outcomes(journal, progress, SPECS | OTHERS, SETTINGS, smoke=smoke)


def tables(found: Any) -> Iterator[tuple[str, str]]:
    """The command and the table of the overview."""
    header = ("method", "f + h", "‖G‖", "accuracy", "zeros", "prox", "sent, both ways")
    rows = [
        (
            "ZA1, β = 0.1" if label == "ZA1" else label,
            f"{one['objective']:.4f}",
            short(one["gradient_norm"]),
            f"{one['accuracy']:.4f}",
            f"{one['zeros']:.1%}".replace("%", " %"),
            f"{one['prox']:,}",
            megabytes(one["up"] + one["down"]),
        )
        for label, one in found.items()
        if label in SPECS
    ]
    yield "digits", command(list(SPECS.values()), SETTINGS) + table(header, rows)


def sentences(found: Any) -> Iterator[tuple[str, str]]:
    """What pages of methods say of the default run."""

    def accuracy(label: str) -> str:
        return f"{found[label]['accuracy']:.4f}"

    def objective(label: str, digits: int = 4) -> str:
        return f"{found[label]['objective']:.{digits}f}"

    def zeros(label: str) -> str:
        return f"{found[label]['zeros']:.1%}".replace("%", " %")

    def residual(label: str) -> str:
        return short(found[label]["gradient_norm"])

    plus = "FedCanon+"
    yield (
        "fedcanon-plus",
        f"ends after 120 rounds at f + h = {objective(plus)} with accuracy {accuracy(plus)} and "
        f"{zeros(plus)} zeros; without acceleration at {objective('not accelerated')} with "
        f"accuracy {accuracy('not accelerated')}",
    )
    ends = {objective(label, 6) for label in ("FedCanon", "FedCanon II")}
    yield "fedcanon2", f"in the default run both end with objective {' and '.join(sorted(ends))}"
    yield "../index", f"default run ends with {zeros(plus)} of its penalised weights at 0"
    yield "../../README", f"has test accuracy {accuracy('FedAvg')} and no zeros"
    yield (
        "fedavg",
        f"it reaches test accuracy {accuracy('FedAvg')} with no zeros, FedCanon+ {accuracy(plus)} "
        f"with {zeros(plus)} zeros",
    )
    yield (
        "fedavg",
        f"In the default run with β = 0.1 momentum 0.9 reaches accuracy {accuracy('momentum')}",
    )
    yield "fedprox", f"accuracy {accuracy('FedProx')}, FedAvg {accuracy('FedAvg')}"
    yield (
        "fedadam",
        f"In the default run (d = 55,210, 120 rounds) 0.1 ends at accuracy {accuracy('FedAdam')} "
        f"with large weights (f + h = {objective('FedAdam', 1)}), 0.01 at "
        f"{accuracy('FedAdam, 0.01')} (f + h = {objective('FedAdam, 0.01', 1)})",
    )
    yield (
        "fedyogi",
        f"In the default run its accuracy is {accuracy('FedYogi')}, {accuracy('FedYogi, 0.01')} "
        f"with `server_step = 0.01`; FedAdam has {accuracy('FedAdam')} and "
        f"{accuracy('FedAdam, 0.01')}",
    )
    yield (
        "fedexp",
        f"In the default run it ends at accuracy {accuracy('FedExP')}, FedAvg at "
        f"{accuracy('FedAvg')}",
    )
    yield (
        "feddr",
        f"In the default run it has accuracy {accuracy('FedDR')} and {zeros('FedDR')} zeros after "
        f"120 rounds, FedCanon+ {accuracy(plus)} and {zeros(plus)}; with η = 1 and β = 0.1, "
        f"{accuracy('FedDR, 1')} and {zeros('FedDR, 1')}",
    )
    yield (
        "fedmid",
        f"With β = 0.1 in the default run it has {zeros('FedMiD, 0.1')} zeros and accuracy "
        f"{accuracy('FedMiD, 0.1')} after 120 rounds, where FedCanon+ with α = 1, β = 0.1 and "
        f"neither damping nor acceleration has {zeros('small steps')} and "
        f"{accuracy('small steps')}",
    )
    yield (
        "za1",
        f"f + h = {objective('ZA1')} and ‖G‖ = {residual('ZA1')} against "
        f"{objective('small steps')} and {residual('small steps')}, for {found['ZA1']['prox']:,} "
        f"prox calls against {found['small steps']['prox']:,}. With automatic steps FedCanon+ "
        f"reaches {objective(plus)}",
    )
    yield "za1", f"in the default run, which ends at f + h = {objective('ZA1, auto')}"
    yield "pgd", f"it reaches objective {objective('PGD')}, FedCanon+ {objective(plus)}"
