"""What happens in a round of a deployment, from what the tracer has written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

PHASES = ("transfer", "polling", "start", "imports", "work", "commit")


@dataclass(frozen=True)
class Event:
    """The start of a process, or a request: when it began and ended."""

    what: str
    process: int
    port: int | None
    begin: float
    end: float


def events(trace: Path) -> list[Event]:
    """Read what is there so far; the last line may be unfinished."""
    lines = trace.read_text().splitlines() if trace.exists() else []
    return [Event(*json.loads(line)) for line in lines if line.endswith("]")]


def sendings(found: list[Event], superlink: int) -> list[float]:
    """When the server has sent messages."""
    mine = (e for e in found if e.what == "/v1/runtime/push-messages" and e.port == superlink)
    return sorted(event.begin for event in mine)


def phases(
    found: list[Event], superlink: int, ports: list[int], begin: float, end: float
) -> dict[str, float]:
    """Return the seconds of each phase, on the way through the client that was last.

    Args:
        found: All events.
        superlink: The port of the SuperLink.
        ports: The ports of the SuperNodes.
        begin: When the server has sent the messages of the round.
        end: When it has sent the next ones.
    """
    by_path: dict[str, list[Event]] = {}
    started = {event.process: event for event in found if event.what == "process"}
    for event in found:
        if begin <= event.begin < end:
            by_path.setdefault(event.what.removeprefix("/v1/"), []).append(event)

    def requests(path: str, **wanted: int) -> list[Event]:
        return [
            event
            for event in by_path.get(path, [])
            if all(getattr(event, name) == value for name, value in wanted.items())
        ]

    nodes = {event.port: pid for pid, event in started.items() if event.port in ports}
    away = {
        port: max(event.end for event in requests("fleet/push-object", process=nodes[port]))
        for port in ports
    }
    last = max(ports, key=away.__getitem__)
    node = nodes[last]
    [task] = requests("runtime/pull-task-input", port=last)
    process = started[task.process]
    answer = requests("runtime/push-messages", process=task.process)[0]
    replies = [e for e in requests("runtime/pull-object", port=superlink) if e.begin >= away[last]]
    steps = [
        ("transfer", max(e.end for e in requests("runtime/push-object", port=superlink))),
        ("polling", min(e.begin for e in requests("fleet/pull-object", process=node))),
        ("transfer", requests("fleet/confirm-message-received", process=node)[-1].end),
        ("polling", process.begin),
        ("start", process.end),
        ("imports", task.begin),
        (
            "transfer",
            max(e.end for e in requests("runtime/confirm-message-received", port=last)),
        ),
        ("imports", requests("called", process=task.process)[0].begin),
        ("work", answer.begin),
        ("transfer", max(e.end for e in requests("runtime/push-object", process=task.process))),
        ("polling", requests("fleet/push-messages", process=node)[0].begin),
        ("transfer", away[last]),
        ("polling", min((e.begin for e in replies), default=away[last])),
        (
            "transfer",
            max(e.end for e in requests("runtime/confirm-message-received", port=superlink)),
        ),
        ("commit", end),
    ]
    seconds, now = dict.fromkeys(PHASES, 0.0), begin
    for phase, moment in steps:  # a step that has begun before the last one ended counts the rest
        seconds[phase] += max(0.0, moment - now)
        now = max(now, moment)
    return seconds
