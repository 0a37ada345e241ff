"""Runs that differ only in their seed form a group, with a label that tells it from the others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedcanon.report.page.reading import Run
from fedcanon.report.wording import setting


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seed, and a label that no other group has."""

    label: str
    runs: list[Run]

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the first run, which all runs share except for the seed."""
        return self.runs[0].settings

    @property
    def measured(self) -> list[Run]:
        """The runs over which means are taken.

        These are the finished runs or, while there are none, all runs that have measures.
        """
        started = [run for run in self.runs if run.records]
        return [run for run in started if run.status == "finished"] or started


def grouped(runs: Sequence[Run]) -> list[Group]:
    """Put runs into groups, in the order of the first run of each group."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(_without_seed(run), []).append(run)
    groups = [Group("", members) for members in found.values()]
    return [Group(_label(group, groups), group.runs) for group in groups]


def differing(groups: Sequence[Group]) -> list[str]:
    """The settings in which groups differ, without the seed."""
    keys = dict.fromkeys(key for group in groups for key in group.settings if key != "seed")
    return [key for key in keys if len(_values(key, groups)) > 1]


def _label(group: Group, groups: Sequence[Group]) -> str:
    """The name of the method, and as few settings as are needed to tell a group from the others."""
    words = []
    alike, key = list(groups), "algorithm.name"
    while True:
        value = group.settings.get(key)
        by_layers = key == "penalty.name" and value is None
        words.append("layers" if by_layers else setting(key, value))
        alike = [other for other in alike if _text(other.settings.get(key)) == _text(value)]
        if len(alike) == 1:
            return " · ".join(words)
        key = _most_telling(alike)


def _most_telling(groups: Sequence[Group]) -> str:
    """The setting that tells most groups apart; names, such as that of the penalty, come first."""
    keys = differing(groups)
    names = [key for key in keys if key.endswith(".name")]
    return max(names or keys, key=lambda key: len(_values(key, groups)))


def _values(key: str, groups: Sequence[Group]) -> set[str]:
    return {_text(group.settings.get(key)) for group in groups}


def _without_seed(run: Run) -> str:
    return _text({key: value for key, value in run.settings.items() if key != "seed"})


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
