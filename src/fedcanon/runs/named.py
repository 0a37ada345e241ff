"""Makes algorithms, penalties, models, datasets, … from the tables of a configuration."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from fedcanon.algorithms import ALGORITHMS, SCHEDULES, Algorithm, Schedule
from fedcanon.compression import COMPRESSORS, Chain, Compressor
from fedcanon.data import DATASETS, Dataset
from fedcanon.errors import FedcanonError, unknown_name
from fedcanon.importing import import_object, is_import_path
from fedcanon.layout import Layout
from fedcanon.objectives.families import FAMILIES, Family
from fedcanon.objectives.losses import LOSSES, Loss
from fedcanon.objectives.models import MODELS, Imported, Model
from fedcanon.penalties import PENALTIES, Penalty, PerLayer, Sum, on_weights, with_our_names
from fedcanon.runs.config import Table
from fedcanon.runs.mistakes import unknown_key

T = TypeVar("T")


def make_algorithm(table: Table) -> Algorithm:
    """Make the algorithm of an ``[algorithm]`` table, in which nothing is "auto"."""
    fields = {
        key: _schedule(key, value) if isinstance(value, dict) and key != "name" else value
        for key, value in table.items()
    }
    if fields.get("alpha") == "beta*K":
        fields["alpha"] = None
    return _make("algorithm", ALGORITHMS, fields, Algorithm)


def make_compressor(table: Table) -> Compressor:
    """Make the compressor of a ``[compression]`` table."""
    if table.get("name") == "chain":
        return Chain(tuple(map(make_compressor, _tables("compression.steps", table.get("steps")))))
    return _make("compression", COMPRESSORS, table, Compressor, noun="compressor")


def _schedule(key: str, table: Table) -> Schedule:
    fields = {k: v for k, v in table.items() if k != "schedule"}
    named = {"name": table["schedule"]} if "schedule" in table else {}
    return _make(
        f"algorithm.{key}", SCHEDULES, {**fields, **named}, Schedule, noun=f"schedule for {key}"
    )


def make_penalty(table: Table, layout: Layout) -> Penalty:
    """Make the penalty of a ``[penalty]`` table for a model with this layout.

    By default it applies to weights only (see ``on_weights``); with ``on = "all"`` also to biases
    and normalisation parameters. ``layers`` is a list of penalties for layers by name pattern.
    """
    table = with_our_names(table)
    if "layers" in table:
        if len(table) > 1:
            raise FedcanonError("a [penalty] table with layers has no other keys.")
        return PerLayer(layout, tuple(map(_layer_rule, _tables("penalty.layers", table["layers"]))))
    fields = dict(table)
    on = fields.pop("on", "weights")
    if on not in ("weights", "all"):
        raise FedcanonError(f'penalty.on must be "weights" or "all", not {on!r}.')
    penalty = _penalty(fields)
    return penalty if on == "all" else on_weights(penalty, layout)


def _layer_rule(rule: Table) -> tuple[str, Penalty]:
    match = rule.get("match")
    if not isinstance(match, str):
        raise FedcanonError('every entry of penalty.layers needs match = "name pattern".')
    return match, _penalty({key: value for key, value in rule.items() if key != "match"})


def _penalty(table: Table) -> Penalty:
    """Make a penalty by name, or the sum of a list of terms for the name "sum"."""
    if table.get("name") != "sum":
        registry: Mapping[str, Callable[..., Penalty]] = {**PENALTIES, "sum": Sum}
        return _make("penalty", registry, table, Penalty)
    unknown = table.keys() - {"name", "terms"}
    if unknown:
        raise FedcanonError(unknown_key(f"penalty.{min(unknown)}", ["terms"]))
    return Sum(tuple(map(_penalty, _tables("penalty.terms", table.get("terms")))))


def _tables(key: str, value: Any) -> list[Table]:
    if not (isinstance(value, list) and value and all(isinstance(v, dict) for v in value)):
        raise FedcanonError(f"{key} must be a list of one or more tables, not {value!r}.")
    return value


def make_model(table: Table) -> Model:
    """Make the model of a ``[model]`` table: by name, or by package.module:factory."""
    if ":" in table["name"]:
        return Imported(table["name"], {k: v for k, v in table.items() if k != "name"})
    return _make("model", MODELS, table, Model)


def make_dataset(table: Table) -> Dataset:
    """Load the dataset of a ``[data]`` table, with its options."""
    return _make("data", DATASETS, table, Dataset, noun="dataset")


def make_loss(table: Table) -> Loss:
    """Make the loss of a ``[loss]`` table, for networks."""
    return _make("loss", LOSSES, table, object)


def make_family(table: Table) -> Family:
    """Make the family of responses of a linear model, from its name and its options."""
    return _make("family", FAMILIES, table, Family)


def penalty_parameters(name: str) -> set[str]:
    """Return the names of the parameters of a penalty.

    Raises:
        FedcanonError: There is no such penalty.
    """
    ours = with_our_names({"name": name})["name"]
    return set(inspect.signature(find(ours, PENALTIES, "penalty")).parameters)


def find(name: str, registry: Mapping[str, T], noun: str) -> T:
    """Return the entry of a registry with this name, or import package.module:Name.

    ``noun`` says what is looked for, in error messages.

    Raises:
        FedcanonError: There is no such entry, or it cannot be imported.
    """
    if name not in registry and not is_import_path(name):
        raise FedcanonError(unknown_name(noun, name, registry))
    found: T = registry[name] if name in registry else import_object(name, noun)
    return found


def _make(
    kind: str,
    registry: Mapping[str, Callable[..., T]],
    table: Table,
    expected: type,
    noun: str | None = None,
) -> T:
    """Make an object from a table: call the entry that it names with its other keys.

    Args:
        kind: The name of the table in the configuration.
        registry: The entries by name.
        table: The table.
        expected: The type that the result must have.
        noun: What is made, in error messages; None is ``kind``.
    """
    noun = noun or kind
    if "name" not in table:
        raise FedcanonError(f"{kind} needs the name of a {noun}: one of {', '.join(registry)}.")
    name = str(table["name"])
    entry = find(name, registry, noun)
    parameters = inspect.signature(entry).parameters
    # A dataclass has its annotations on the class, any other class on its __init__.
    hints = get_type_hints(entry.__init__ if _is_plain_class(entry) else entry)
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key == "name":
            continue
        if not parameters:
            raise FedcanonError(f"unknown key '{kind}.{key}': the {noun} '{name}' has no options.")
        if key not in parameters:
            raise FedcanonError(unknown_key(f"{kind}.{key}", parameters))
        adapter = TypeAdapter(hints.get(key, Any), config=ConfigDict(arbitrary_types_allowed=True))
        try:
            values[key] = adapter.validate_python(_tupled(value), strict=True)
        except ValidationError as error:
            message = _step_words(key, hints[key]) or error.errors()[0]["msg"]
            raise FedcanonError(
                f"{kind}.{key} = {value!r}: {message[0].lower()}{message[1:]}."
            ) from None
    for key, parameter in parameters.items():
        if key not in values and parameter.default is inspect.Parameter.empty:
            raise FedcanonError(f"{noun} '{name}' needs a value for '{key}'.")
    made = entry(**values)
    if not isinstance(made, expected):
        raise FedcanonError(
            f"{name} makes a {type(made).__name__}, where a {expected.__name__} of fedcanon is "
            f"needed."
        )
    return made


def _step_words(key: str, hint: Any) -> str:
    """Return what a step size can be; nothing for another parameter."""
    if Schedule not in get_args(hint):
        return ""
    words = {"alpha": ', "auto", "beta*K"', "beta": ', "auto"'}.get(key, "")
    if NoneType not in get_args(hint):
        words = words.removesuffix(', "beta*K"')
    example = '{schedule = "cosine", start = 0.1, rounds = 100}'
    return f"use a number{words} or a schedule, such as {example}"


def _is_plain_class(entry: object) -> bool:
    return isinstance(entry, type) and not is_dataclass(entry)


def _tupled(value: Any) -> Any:
    """Convert TOML's lists to tuples, which frozen dataclasses need."""
    return tuple(map(_tupled, value)) if isinstance(value, list) else value
