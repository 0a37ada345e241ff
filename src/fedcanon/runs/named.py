"""Algorithms and penalties from their tables in a configuration."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from fedcanon.algorithms import ALGORITHMS, SCHEDULES, Algorithm, Schedule
from fedcanon.errors import FedcanonError
from fedcanon.layout import Layout
from fedcanon.penalties import PENALTIES, Penalty, PerLayer, Sum, on_weights
from fedcanon.runs.config import Table, unknown_key, unknown_name

T = TypeVar("T")


def make_algorithm(table: Table) -> Algorithm:
    """The algorithm of an ``[algorithm]`` table without "auto" entries."""
    fields = {
        key: _schedule(key, value) if isinstance(value, dict) else value
        for key, value in table.items()
    }
    if fields.get("alpha") == "beta*K":
        fields["alpha"] = None
    return _make("algorithm", ALGORITHMS, fields)


def _schedule(key: str, table: Table) -> Schedule:
    name = table.get("schedule")
    if name not in SCHEDULES:
        raise FedcanonError(unknown_name(f"schedule for {key}", str(name), SCHEDULES))
    fields = {k: v for k, v in table.items() if k != "schedule"}
    return _make(f"algorithm.{key}", SCHEDULES, {"name": name, **fields})


def make_penalty(table: Table, layout: Layout) -> Penalty:
    """The penalty of a ``[penalty]`` table, placed on the parameters of a model.

    By default it acts on weights only (see ``on_weights``); ``on = "all"`` includes biases and
    normalisation parameters. ``layers`` gives penalties per layer instead, by name pattern.
    """
    if "layers" in table:
        if len(table) > 1:
            raise FedcanonError("a [penalty] table with layers has no other keys.")
        rules = []
        for rule in table["layers"]:
            fields = dict(rule)
            match = fields.pop("match", None)
            if not isinstance(match, str):
                raise FedcanonError('every entry of penalty.layers needs match = "name pattern".')
            rules.append((match, _penalty(fields)))
        return PerLayer(layout, tuple(rules))
    fields = dict(table)
    on = fields.pop("on", "weights")
    if on not in ("weights", "all"):
        raise FedcanonError(f'penalty.on must be "weights" or "all", not {on!r}.')
    penalty = _penalty(fields)
    return penalty if on == "all" else on_weights(penalty, layout)


def _penalty(table: Table) -> Penalty:
    if table.get("name") == "sum":
        return Sum(tuple(_penalty(term) for term in table.get("terms", ())))
    return _make("penalty", PENALTIES, table)


def _make(kind: str, registry: Mapping[str, type[T]], table: Table) -> T:
    """An instance of the dataclass that ``table["name"]`` names, from the table's other keys."""
    name = str(table.get("name"))
    if name not in registry:
        raise FedcanonError(unknown_name(kind, name, registry))
    cls = registry[name]
    hints = get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key == "name":
            continue
        if key not in fields:
            raise FedcanonError(unknown_key(f"{kind}.{key}", fields))
        adapter = TypeAdapter(hints[key], config=ConfigDict(arbitrary_types_allowed=True))
        try:
            values[key] = adapter.validate_python(value)
        except ValidationError as error:
            message = error.errors()[0]["msg"]
            raise FedcanonError(
                f"{kind}.{key} = {value!r}: {message[0].lower()}{message[1:]}."
            ) from None
    for key, field in fields.items():
        if key not in values and field.default is dataclasses.MISSING:
            raise FedcanonError(f"{kind} '{name}' needs a value for '{key}'.")
    return cls(**values)
