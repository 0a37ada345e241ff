"""The accountant beside others, the noise that budgets need, and the audit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from comparison.journal import Journal
from comparison.tables import table, write
from rich.progress import Progress
from tests import privacy_audit as audit

from fedcanon import FedcanonError
from fedcanon.privacy import epsilon, noise_multiplier

DELTA = 1e-5
PLD = {
    (6.0, 1.0, 100): 8.004,
    (1.0, 0.1, 100): 7.047,
    (2.0, 0.1, 300): 4.183,
    (0.8, 0.01, 1000): 3.141,
}
"""ε by the privacy loss distributions of dp-accounting, for a noise, a sampling and releases.

They were computed once, because that package does not go with others that are needed here.
"""
BUDGETS = (1.0, 3.0, 8.0)
PLANS = ((1.0, 100), (1.0, 300), (0.1, 100), (0.1, 300))
"""Sampling and releases for which noise is computed."""
FORMS = {"fedcanon": audit.product, "clients keep their noise": audit.kept_noise}


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    levels: tuple[float, ...]
    """Gradients of the client that is looked for, in clips."""
    trials: dict[str, int]


FULL = Size((16.0, 4.0, 1.0), {"fedcanon": 3000, "clients keep their noise": 20_000})
SMOKE = Size((16.0,), {"fedcanon": 30, "clients keep their noise": 300})
Found = dict[str, list[dict[str, Any]]]


def measure(journal: Journal, size: Size, progress: Progress) -> Found:
    cells = list(product(size.levels, FORMS))
    task = progress.add_task("accountants", total=len(cells))
    found: Found = {"accountants": [], "noise": [], "audit": []}
    for (noise, sampling, releases), golden in PLD.items():
        given = (noise, releases, DELTA, sampling)
        run = {"noise": noise, "sampling": sampling, "releases": releases}
        spent = {"own": epsilon(*given), "prv": _prv(given), "pld": golden}
        found["accountants"].append({**run, **spent})
    for sampling, releases in PLANS:
        noises = [noise_multiplier(target, releases, DELTA, sampling) for target in BUDGETS]
        found["noise"].append({"sampling": sampling, "releases": releases, "noises": noises})
    for level, form in cells:
        progress.update(task, description=f"audit: {form}, level {level:g}")
        run = {"form": form, "level": level, "trials": size.trials[form]}
        found["audit"].append({**run, **journal.outcome(run, partial(_audited, **run))})
        progress.advance(task)
    return found


def _prv(given: tuple[float, int, float, float]) -> float | None:
    """ε by Opacus, if it is installed; it is for sampled releases only."""
    if given[-1] == 1:
        return None
    try:
        return epsilon(*given, "prv")
    except FedcanonError:
        return None


def _audited(form: str, level: float, trials: int) -> dict[str, float]:
    return {"epsilon": audit.found_epsilon(FORMS[form](level), trials)}


def report(found: Found, size: Size, path: Path) -> str:
    """Write all results and return the table of the audit."""
    audited = audit_table(found, size)
    text = f"""\
ε by accountant, δ = 1e-5. PLD are the privacy loss distributions of dp-accounting, computed once.
PRV, if it is installed, is asked only if there is sampling: without it ours is exact.

{accountants_table(found)}
The noise multiplier s that a budget needs:

{noise_table(found)}"""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name(f"{path.name}-audit.md").write_text(audited)
    write(path, found, text)
    return audited


def accountants_table(found: Found) -> str:
    def shown(value: float | None) -> str:
        return "–" if value is None else f"{value:.3f}"

    header = ("s", "sampling q", "releases", "fedcanon", "PRV (Opacus)", "PLD")
    return table(
        header,
        [
            (
                f"{row['noise']:g}",
                f"{row['sampling']:g}",
                f"{row['releases']:,}",
                *(shown(row[name]) for name in ("own", "prv", "pld")),
            )
            for row in found["accountants"]
        ],
    )


def noise_table(found: Found) -> str:
    header = ("sampling q", "releases", *(f"ε = {target:g}" for target in BUDGETS))
    return table(
        header,
        [
            (f"{row['sampling']:g}", str(row["releases"]), *(f"{s:.2f}" for s in row["noises"]))
            for row in found["noise"]
        ],
    )


def audit_table(found: Found, size: Size) -> str:
    claimed = audit.PRIVACY.spent(audit.ROUNDS)
    by_level: dict[float, dict[str, float]] = {}
    for row in found["audit"]:
        by_level.setdefault(row["level"], {})[row["form"]] = row["epsilon"]

    def shown(value: float) -> str:
        return f"**≥ {value:.2f}**" if value > claimed else f"≥ {value:.2f}"

    header = ("level of the client", "claimed ε", *FORMS)
    rows = [
        (f"{level:g} τ", f"{claimed:.2f}", *(shown(own[form]) for form in FORMS))
        for level, own in by_level.items()
    ]
    most = {form: audit.largest(trials) for form, trials in size.trials.items()}
    limits = "\n".join(
        f'- "{form}": {size.trials[form]:,} trials, which can show an ε of {most[form]:.1f} at most'
        for form in FORMS
    )
    return f"""\
Noise s = {audit.NOISE:g}, {audit.ROUNDS} rounds, δ = 1e-5. Lower bounds on ε with 95 % confidence,
from released sums only. Bold is more than was claimed.

{limits}

{table(header, rows)}"""
