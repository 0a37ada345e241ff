"""What an operator sees of a deployment, in the terminal and in the browser."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedcanon.deployment.status import LastAnswer, Situation, read_status

COLUMNS = ("client", "state", "samples", "held out", "round", "answer", "s", "kB", "refused")
"""The columns of the table of clients: round, time, seconds of work and size of the last answer."""

DISTANCE = "distance"
"""A further column if there is a robust rule: D_i/ρ of a client, which is odd from 1 on."""


@dataclass(frozen=True)
class Overview:
    """The clients of a deployment, a row of texts for each, and the last events.

    ``rounds`` says how long rounds take and what they carry.
    """

    rounds: dict[str, str]
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    events: list[str]


def read_overview(folder: Path) -> Overview | None:
    """Return the overview of the deployment in the folder of a run; None if it is none.

    Raises:
        FedcanonError: The status file is damaged.
    """
    situation = read_status(folder)
    return None if situation is None else overview(situation)


def overview(told: Situation) -> Overview:
    """Return what an operator wants to know of a deployment."""
    membership = told.membership
    clients = sorted([*membership.members, *membership.gone])
    rows = [_row(told, client) for client in clients]
    faults = [
        f"{answer.when}  client {client}'s last answer was refused: {answer.fault}"
        for client, answer in sorted(told.answers.items())
        if answer.fault
    ]
    columns = (*COLUMNS, DISTANCE) if told.distances else COLUMNS
    return Overview(_rounds(told), columns, rows, [*told.events[-5:], *faults[:5]])


def _rounds(told: Situation) -> dict[str, str]:
    generation = f"{told.membership.generation}, states with the {told.keeper}"
    facts = {"generation": generation}
    if told.paused:
        facts["paused"] = "by the operator: go on with 'fedcanon deploy resume'"
    times, count = told.since_start, told.since_start.count
    if count:
        own, server = times.client_seconds / count, times.server_seconds / count
        waiting = max(0.0, times.seconds / count - own - server)
        facts["a round"] = (
            f"{times.seconds / count:.1f} s: slowest client {own:.1f} s, "
            f"messages {waiting:.1f} s, combining {server:.1f} s"
        )
        down, up = told.traffic.bytes_down / count, told.traffic.bytes_up / count
        facts["bytes a round"] = f"{down / 1000:,.0f} kB down, {up / 1000:,.0f} kB up"
    return facts


def _row(told: Situation, client: int) -> tuple[str, ...]:
    membership = told.membership
    there, last = told.present.get(client), told.answers.get(client, LastAnswer())
    state = membership.gone.get(client) or ("there" if there else "away")
    distance = told.distances.get(client)
    further = ("" if distance is None else f"{distance:.2f}",) if told.distances else ()
    return (
        str(client),
        state,
        f"{there.samples:,}" if there else "",
        f"{there.held_out:,}" if there else "",
        str(membership.last_round.get(client, "")),
        last.when[11:19],
        f"{last.seconds:.1f}" if last.when else "",
        f"{last.bytes / 1000:,.0f}" if last.bytes else "",
        str(membership.refusals.get(client, "")),
        *further,
    )
