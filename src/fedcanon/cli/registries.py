"""What ``fedcanon list`` prints, as the registries have it.

``python -m fedcanon.cli.registries`` writes it down, after a change to a registry, a parameter or
the first line of a docstring.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Any

from fedcanon.algorithms import ALGORITHMS, SCHEDULES
from fedcanon.cli.catalogue import WRITTEN, Catalogue
from fedcanon.compression import COMPRESSORS
from fedcanon.data import DATASETS
from fedcanon.data.partition import PARTITIONS
from fedcanon.objectives.losses import LOSSES
from fedcanon.objectives.models import MODELS, Imported
from fedcanon.penalties import PENALTIES
from fedcanon.robustness import ATTACKS, flipped
from fedcanon.robustness.rules import RULES_ALONE, after_mixing, mean
from fedcanon.runs.engine_choice import ENGINES
from fedcanon.trackers import TRACKERS

Entries = dict[str, list[str]]
"""What each name stands for, and its parameters."""


def catalogue() -> dict[str, Entries]:
    """Return every list."""
    return {
        Catalogue.algorithms: _entries(ALGORITHMS),
        Catalogue.schedules: _entries(SCHEDULES),
        Catalogue.penalties: _entries(PENALTIES),
        Catalogue.datasets: _entries(DATASETS),
        Catalogue.partitions: _entries(PARTITIONS),
        Catalogue.models: {
            **_entries(MODELS),
            "package.module:factory": [_first_line(Imported), "those of the factory"],
        },
        Catalogue.losses: _entries(LOSSES),
        Catalogue.compressors: _entries(COMPRESSORS),
        Catalogue.engines: {name: [what, ""] for name, what in ENGINES.items()},
        Catalogue.rules: {
            name: [_first_line(rule), ""]
            for name, rule in {"mean": mean, **RULES_ALONE, "nnm+…": after_mixing}.items()
        },
        Catalogue.attacks: {
            name: [
                _first_line(attack.act or flipped),
                "" if attack.strength is None else f"strength = {attack.strength}",
            ]
            for name, attack in ATTACKS.items()
        },
        Catalogue.trackers: {name: [_first_line(kind), ""] for name, kind in TRACKERS.items()},
    }


def _entries(registry: Mapping[str, Any]) -> Entries:
    return {name: [_first_line(entry), _parameters(entry)] for name, entry in registry.items()}


def _first_line(entry: Any) -> str:
    return (inspect.getdoc(entry) or "").partition("\n")[0].replace("``", "")


def _parameters(entry: Any) -> str:
    shown = []
    for parameter in inspect.signature(entry).parameters.values():
        if parameter.name == "name":  # of the entry itself, in a configuration
            continue
        required = parameter.default is inspect.Parameter.empty or "<" in str(parameter.default)
        shown.append(parameter.name if required else f"{parameter.name} = {parameter.default}")
    return ", ".join(shown)


if __name__ == "__main__":
    WRITTEN.write_text(json.dumps(catalogue(), indent=1, ensure_ascii=False) + "\n", "utf-8")
