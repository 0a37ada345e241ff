"""The foot of a page: settings that differ, and what the runs were made with."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from fedcanon.report.page.groups import Group, differing
from fedcanon.report.page.reading import Run
from fedcanon.report.wording import different, written


def differences(groups: Sequence[Group]) -> dict[str, list[str]]:
    """The settings in which groups differ, each with its value in every group."""
    found = {
        key: [written(group.settings.get(key)) for group in groups] for key in differing(groups)
    }
    seeds = [", ".join(str(run.config.seed) for run in group.runs) for group in groups]
    return found | ({"seed": seeds} if len(set(seeds)) > 1 else {})


def environment(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Command, versions and hardware of the runs; several lines where they differ."""
    known = [run.environment for run in runs if run.environment]
    found = {
        "command": different(shlex.join(made.command) for made in known),
        "versions": different(made.software for made in known),
        "commit": different(made.commit or "" for made in known),
        "hardware": different(made.hardware for made in known),
        "system": different(made.system for made in known),
    }
    return {name: lines for name, lines in found.items() if any(lines)}
