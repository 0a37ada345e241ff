"""Tables, targets and the picture of the convex suite."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from comparison.convex import Found
from comparison.convex_methods import BEFORE, FISTA, METHODS, ONE_STEP, K
from comparison.journal import Outcome
from comparison.race import CAP, TOLERANCES
from comparison.tables import Target, panels, table, targets_table, write

COLUMNS = (FISTA, BEFORE, ONE_STEP, *METHODS)
CURVES = {
    "newton": "#c2255c",
    "FedCanon+": "#3b5bdb",
    ONE_STEP: "#74c0fc",
    FISTA: "#2b8a3e",
    "FedADMM": "#f08c00",
    "ProxSkip": "#5f3dc4",
    BEFORE: "#495057",
}
MOST = {"newton": 15}
PACE, NEAR = 5, 1.5


def report(found: Found, rounds: int, path: Path) -> str:
    """Write all results and return the table of targets."""
    summary = targets_table(targets(found, rounds))
    write(path, found, "\n".join([introduction(rounds), summary, *tables(found)]), picture(found))
    return summary


def introduction(rounds: int) -> str:
    return f"""\
Rounds until ‖G‖ is at most 1e-3, 1e-6 and 1e-9, from 0, with exact gradients, K = {K} local steps
and clients weighted by their samples. N = 10 clients and all of them in every round, where a name
does not say otherwise. A cell has the rounds with automatic steps and, after a slash, those of the
best of these and nine other points, where they were tried; every tolerance may have its own best
point. "30 %" is the share of clients in a round, "200×500" is least squares with 200 samples of 500
features, and the group lasso has twenty groups of five features.

FedCanon+, newton and FISTA may take {CAP:,} rounds, other runs {rounds:,}; those of other
methods are given up if twice their pace over the last 100 rounds would not bring them to the next
tolerance within these. A dash is a tolerance that was not reached, or a prox that does not exist.
In brackets is the smallest ‖G‖ of runs that did not come to 1e-3.

FISTA takes one exact gradient of f per round from all clients, with the step 1/L of f and adaptive
restart. "{BEFORE}" is FedCanon+ without acceleration, with α = min(1/L, 1/(2ρ)) and
β = 1/(KL). ProxSkip and PGD take one gradient per round, too. With N = 100 only FedCanon+ and
newton are run, at "auto". An empty cell is a method that needs all clients, or was not run.
"""


def count(number: float | None) -> str:
    return "–" if number is None else f"{number:,.0f}"


def megabytes(number: float | None) -> str:
    return "–" if number is None else f"{number / 1e6:.3g}"


def tables(found: Found) -> list[str]:
    """Return one table of rounds for each tolerance, and one of bytes."""
    parts = []
    for k, tolerance in enumerate(TOLERANCES):
        parts += [f"Rounds to ‖G‖ ≤ {tolerance:.0e}:\n", _table(found, "rounds", k, count)]
    title = f"Megabytes to ‖G‖ ≤ {TOLERANCES[1]:.0e}, all clients, both ways:\n"
    return [*parts, title, _table(found, "bytes", 1, megabytes)]


def _table(found: Found, what: str, k: int, form: Callable[[float | None], str]) -> str:
    def shown(outcome: Outcome) -> str:
        """Rounds or bytes, or how far the run came if it reached no tolerance at all."""
        if outcome["rounds"][0] is None and k == 0 and outcome["smallest"] is not None:
            return f"({outcome['smallest']:.0e})"
        return form(outcome[what][k])

    def cell(label: str, own: dict[str, Outcome]) -> str:
        outcomes = own.get(label, {})
        return " / ".join(shown(outcome) for outcome in outcomes.values() if outcome)

    rows = [(name, *(cell(label, own) for label in COLUMNS)) for name, own in found.items()]
    return table(("problem", *COLUMNS), rows)


def targets(found: Found, rounds: int) -> list[Target]:
    """Return what should hold, with the numbers."""
    auto = {name: own["FedCanon+"]["auto"]["rounds"] for name, own in found.items()}

    def other(label: str) -> dict[str, list[float | None]]:
        return {name: own[label]["auto"]["rounds"] for name, own in found.items()}

    return [
        _pace(auto, other(BEFORE), rounds),
        _reached("FedCanon+", auto, CAP),
        _reached("newton", _only(found, "newton"), MOST["newton"]),
        *(_near(found, auto, k) for k in range(len(TOLERANCES))),
        *(
            _fewer(auto, other(FISTA), k, f"{FISTA} with all clients")
            for k in range(len(TOLERANCES))
        ),
        *(_fewer(auto, other(ONE_STEP), k, ONE_STEP) for k in range(len(TOLERANCES))),
    ]


def _only(found: Found, label: str) -> dict[str, list[float | None]]:
    return {name: own[label]["auto"]["rounds"] for name, own in found.items() if label in own}


def _pace(auto: dict, before: dict, rounds: int) -> Target:
    # A run of FedCanon+ that did not come is no faster at all.
    times = [(before[n][0] or rounds) / own[0] if own[0] else 0.0 for n, own in auto.items()]
    unknown = sum(own[0] is None for own in before.values())
    median = statistics.median(times)
    measured = f"{median:.1f} times (least {min(times):.1f}); {unknown} of {len(times)} are lower "
    measured += f"bounds, because {BEFORE} did not arrive in {rounds:,} rounds"
    what = f"at least {PACE} times fewer rounds to 1e-3 than {BEFORE}, in the median"
    return Target(what, median >= PACE, measured)


def _reached(label: str, rounds: dict, most: int) -> Target:
    last = {name: own[-1] for name, own in rounds.items()}
    reached = [n for n in last.values() if n is not None and n <= most]
    missed = [name for name, n in last.items() if n is None or n > most]
    measured = f"{len(reached)} of {len(last)}, at most {max(reached, default=0):,} rounds"
    if missed:
        measured += "; not " + "; ".join(missed)
    return Target(f"{label} at 1e-9 within {most:,} rounds on all", not missed, measured)


def _near(found: Found, auto: dict, k: int) -> Target:
    tuned = {name: own["FedCanon+"]["best"] for name, own in found.items()}
    bests = {name: best["rounds"][k] for name, best in tuned.items() if best}
    ratios = {
        name: auto[name][k] / best
        for name, best in bests.items()
        if best is not None and auto[name][k] is not None
    }
    above = [f"{name} {ratio:.2f}" for name, ratio in ratios.items() if ratio > NEAR]
    measured = f"{len(ratios) - len(above)} of {len(bests)}, "
    measured += f"median {statistics.median(ratios.values() or [math.inf]):.2f}, "
    measured += f"most {max(ratios.values(), default=math.inf):.2f}"
    measured += f"; above: {'; '.join(above)}" if above else ""
    what = f"auto within {NEAR} times the best of the grid, to {TOLERANCES[k]:.0e}"
    return Target(what, not above and len(ratios) == len(bests), measured)


def _fewer(auto: dict, other: dict, k: int, label: str) -> Target:
    """FedCanon+ at auto against another, where reaching a tolerance beats not reaching it."""
    not_fewer = [
        f"{name} {count(own[k])} to {count(other[name][k])}"
        for name, own in auto.items()
        if own[k] is None or (other[name][k] is not None and own[k] >= other[name][k])
    ]
    measured = f"{len(auto) - len(not_fewer)} of {len(auto)}"
    if not_fewer:
        measured += f"; not {'; '.join(not_fewer)}"
    what = f"fewer rounds than {label}, to {TOLERANCES[k]:.0e}, on every problem"
    return Target(what, not not_fewer, measured)


def picture(found: Found) -> Figure:
    """‖G‖ against rounds, a panel for each problem, with automatic steps."""
    figure, every = panels(list(found), 4, 3.4, 2.5)
    for axes, own in zip(every, found.values(), strict=True):
        for label, colour in CURVES.items():
            if label in own:
                curve = own[label]["auto"]["curve"]
                x = [1 + curve["every"] * k for k in range(len(curve["norms"]))]
                width = 2.2 if label in ("FedCanon+", "newton") else 1.3
                axes.semilogy(x, curve["norms"], color=colour, label=label, linewidth=width)
        reached = own["FedCanon+"]["auto"]["rounds"][-1] or CAP
        axes.set_xlim(0, 3 * reached)
        axes.set_ylim(3e-10, None)
    figure.supylabel("‖G‖", fontsize=9)
    handles = {
        line.get_label(): line
        for axes in figure.axes
        for line in axes.get_legend_handles_labels()[0]
    }
    shown = [label for label in CURVES if label in handles]
    figure.legend(
        [handles[label] for label in shown], shown, loc="outside upper center", ncols=7, fontsize=9
    )
    return figure
