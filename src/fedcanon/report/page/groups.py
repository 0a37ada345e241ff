"""Runs that differ only in their seed belong together; what tells the groups apart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedcanon.report.page.reading import Run
from fedcanon.report.wording import setting


@dataclass(frozen=True)
class Group:
    """Runs of one configuration with different seeds, under a label that no other group has."""

    label: str
    runs: list[Run]

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the group, with those of the first run where seeds matter."""
        return self.runs[0].settings

    @property
    def measured(self) -> list[Run]:
        """The runs that means are taken over.

        These are the finished ones. As long as there are none, it is all that have measures:
        what has been reached so far.
        """
        started = [run for run in self.runs if run.records]
        return [run for run in started if run.status == "finished"] or started


def grouped(runs: Sequence[Run]) -> list[Group]:
    """Groups in the order in which they first appear."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(_without_seed(run), []).append(run)
    groups = [Group("", members) for members in found.values()]
    return [Group(_label(group, groups), group.runs) for group in groups]


def differing(groups: Sequence[Group]) -> list[str]:
    """The keys, without the seed, in which groups differ."""
    keys = dict.fromkeys(key for group in groups for key in group.settings if key != "seed")
    return [key for key in keys if len(_values(key, groups)) > 1]


def _label(group: Group, groups: Sequence[Group]) -> str:
    """The method, with as few settings behind it as it takes to tell it from the others."""
    words = []
    rivals, key = list(groups), "algorithm.name"
    while True:
        value = group.settings.get(key)
        words.append(setting(key, value))
        rivals = [rival for rival in rivals if _text(rival.settings.get(key)) == _text(value)]
        if len(rivals) == 1:
            return " · ".join(words)
        key = _telling(rivals)


def _telling(groups: Sequence[Group]) -> str:
    """The key that says most about how groups differ: a name, or else what has most values."""
    keys = differing(groups)
    names = [key for key in keys if key.endswith(".name")]
    return max(names or keys, key=lambda key: len(_values(key, groups)))


def _values(key: str, groups: Sequence[Group]) -> set[str]:
    return {_text(group.settings.get(key)) for group in groups}


def _without_seed(run: Run) -> str:
    return _text({key: value for key, value in run.settings.items() if key != "seed"})


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
