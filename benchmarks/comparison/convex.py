"""Rounds and bytes to a stationary point on the convex suite, for every composite method."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

from rich.progress import Progress

from comparison.convex_methods import (
    BEFORE,
    FISTA,
    METHODS,
    ONE_STEP,
    OURS,
    Table,
    before,
)
from comparison.convex_problems import CASES, Case
from comparison.journal import Journal, Outcome
from comparison.race import CAP, NEVER, federated, fista, race
from fedcanon.algorithms import ALGORITHMS
from fedcanon.runs.named import make_algorithm
from fedcanon.runs.steps import fill_in, find_facts

OPEN: Table = {"name": "fedcanon+"}
"""An algorithm whose steps are open."""
Found = dict[str, dict[str, Outcome]]
"""What was found, by case and method: "auto", and "best" of the grid, None without one."""


class Contest:
    """All methods on one case.

    Runs have 2,000 rounds in which to become stationary, those of other methods than FedCanon+,
    newton and FISTA ``rounds``, which may be fewer to save time.
    """

    def __init__(self, name: str, case: Case, rounds: int, journal: Journal) -> None:
        self._name, self._case, self._rounds, self._journal = name, case, rounds, journal
        facts = find_facts(case.problem, OPEN, None, seed=0)
        self.facts = replace(facts, rho=case.penalty.rho)

    def run(
        self, table: Table, cap: int, best: tuple[float, ...] = NEVER, *, patient: bool = True
    ) -> Outcome:
        """Run a method with the steps of a table; what the table leaves open is "auto"."""
        filled = fill_in(table, self.facts)
        algorithm = make_algorithm(filled)
        return self._journal.outcome(
            # A run may end early for what else is known: then it is another run.
            {
                "case": self._name,
                "algorithm": filled,
                "cap": cap,
                "best": finite(best),
                "patient": patient,
            },
            lambda: race(
                self._case, federated(self._case, algorithm, cap), cap, best, patient=patient
            ),
        )

    def yardsticks(self) -> Iterator[tuple[str, Outcome]]:
        """FISTA, what "auto" meant before, and FedCanon+ with one local step."""
        yield (
            FISTA,
            self._journal.outcome(
                {"case": self._name, "algorithm": FISTA, "cap": CAP},
                lambda: race(self._case, fista(self._case, CAP), CAP),
            ),
        )
        yield BEFORE, self.run(before(self.facts), self._rounds)
        yield ONE_STEP, self.run({"name": "fedcanon+", "local_steps": 1}, CAP)

    def methods(self) -> Iterator[tuple[str, Outcome, Outcome | None]]:
        """Every method at "auto", and with the best points of its grid."""
        scope = self._case.scope
        for label, (table, grid) in METHODS.items():
            ours = label in OURS
            if (scope == "few" and not ours) or not self._allows(table):
                continue
            cap = CAP if ours else self._rounds
            auto = self.run(table, cap, patient=ours)
            tuned = grid and (scope == "grids" or (ours and scope == "auto"))
            yield label, auto, self._best(table, grid(self.facts), auto, cap) if tuned else None

    def _allows(self, table: Table) -> bool:
        everyone = self._case.participants is None
        return everyone or ALGORITHMS[table["name"]].partial_participation

    def _best(self, table: Table, grid: list[Table], auto: Outcome, cap: int) -> Outcome:
        """Return the least rounds and bytes to each tolerance over "auto" and the grid.

        Every tolerance may have its own best point.
        """
        outcomes = [auto]
        for point in grid:
            outcomes.append(
                self.run({**table, **point}, cap, least(outcomes, "rounds"), patient=False)
            )
        best = {what: finite(least(outcomes, what)) for what in ("rounds", "bytes")}
        smallest = min((o["smallest"] for o in outcomes if o["smallest"] is not None), default=None)
        points = [_without_curve(outcome) for outcome in outcomes[1:]]
        return {**best, "smallest": smallest, "points": points}


def least(outcomes: Iterable[Outcome], what: str) -> tuple[float, ...]:
    """Return the least rounds or bytes to each tolerance; ∞ where no run reached it."""
    columns = zip(*(outcome[what] for outcome in outcomes), strict=True)
    return tuple(min((n for n in column if n is not None), default=NEVER[0]) for column in columns)


def finite(numbers: tuple[float, ...]) -> list[float | None]:
    return [None if number in NEVER else number for number in numbers]


def _without_curve(outcome: Outcome) -> Outcome:
    return {name: value for name, value in outcome.items() if name != "curve"}


def compare(journal: Journal, rounds: int, first: int | None, progress: Progress) -> Found:
    """Run whatever is not in the journal yet of the ``first`` cases; None is all."""
    found: Found = {}
    cases = list(CASES)[:first]
    task = progress.add_task("", total=len(cases))
    for name in cases:
        contest = Contest(name, CASES[name](), rounds, journal)
        found[name] = {}
        runs = chain(((*one, None) for one in contest.yardsticks()), contest.methods())
        for label, auto, best in runs:
            found[name][label] = {"auto": auto, "best": best}
            progress.update(task, description=f"{name}: {label} {auto['rounds']}")
        progress.advance(task)
    return found
