"""Where results come from: settings that differ, and what the runs were made with."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from fedcanon.report.page.groups import Group, differing
from fedcanon.report.page.reading import Run
from fedcanon.report.page.wording import different, written


def differences(groups: Sequence[Group]) -> dict[str, list[str]]:
    """The settings in which groups differ, each with its value for every group."""
    found = {
        key: [written(group.settings.get(key)) for group in groups] for key in differing(groups)
    }
    seeds = [", ".join(str(run.config.seed) for run in group.runs) for group in groups]
    return found | ({"seed": seeds} if len(set(seeds)) > 1 else {})


def environment(runs: Sequence[Run]) -> dict[str, list[str]]:
    """What the runs were made with; several lines where they were not made with the same."""
    tables = [run.environment for run in runs if run.environment]
    found = {
        "command": different(shlex.join(table["command"]) for table in tables),
        "versions": different(map(_versions, tables)),
        "commit": different(table["commit"] or "" for table in tables),
        "hardware": different(map(_hardware, tables)),
        "system": different(table["system"] for table in tables),
    }
    return {name: lines for name, lines in found.items() if any(lines)}


def _versions(table: dict[str, Any]) -> str:
    libraries = {**table["versions"], "Python": table["python"]}
    return ", ".join(f"{name} {version}" for name, version in libraries.items())


def _hardware(table: dict[str, Any]) -> str:
    threads = f"{table['threads']} thread{'s' if table['threads'] != 1 else ''} used"
    memory = f"{table['memory_gib']} GiB"
    return ", ".join(
        [table["processor"], f"{table['cores']} cores", threads, memory, *table["cuda"]]
    )
