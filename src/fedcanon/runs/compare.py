"""Configurations for a comparison of several algorithms."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from fedcanon.algorithms import ALGORITHMS
from fedcanon.errors import FedcanonError
from fedcanon.importing import is_import_path
from fedcanon.runs.config import Config, changed, parse_value
from fedcanon.runs.named import find


def variants(config: Config, specs: Sequence[str]) -> dict[str, Config]:
    """Return one configuration for each specification of an algorithm.

    A specification is a name, or a name with settings of the algorithm and of ``compression``:
    ``fedmid:beta=0.05,server_prox=none``, ``package.module:Name:beta=0.05`` or
    ``fedcanon+:compression.name=top_k``. Everything else is the same for all algorithms. Each
    method takes those entries of the ``[algorithm]`` table that it has as parameters (step sizes,
    local steps); the ``[compression]`` table is for methods that allow it.

    Raises:
        FedcanonError: A specification has a mistake or is given twice.
    """
    for spec in specs:
        if specs.count(spec) > 1:
            raise FedcanonError(f"'{spec}' is given twice: name every algorithm once.")
    return {spec: _variant(config, spec) for spec in specs}


def _variant(config: Config, spec: str) -> Config:
    name, _, options = spec.partition(":")
    if name not in ALGORITHMS and is_import_path(own := ":".join(spec.split(":")[:2])):
        name, options = own, spec.removeprefix(own).removeprefix(":")
    algorithm = find(name, ALGORITHMS, "algorithm")
    known = inspect.signature(algorithm).parameters
    shared = {key: value for key, value in config.algorithm.items() if key in known}
    settings = {"algorithm": {"name": name, **shared}}
    if not algorithm.alterable:
        settings["compression"] = {"name": "none"}
    for option in filter(None, options.split(",")):
        key, equals, value = option.partition("=")
        if not equals:
            raise FedcanonError(f"'{spec}': write settings as {name}:key=value,key=value.")
        if "." in key and not key.startswith("compression."):
            raise FedcanonError(f"'{spec}': {key} must be the same for all: use --set {option}.")
        settings[key if "." in key else f"algorithm.{key}"] = parse_value(value)
    return changed(config, settings)
