"""What is wrong with a configuration, in sentences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from fedcanon.errors import suggestion


def explain(error: ValidationError, kind: type[BaseModel]) -> str:
    """Return a text with one line for every mistake.

    Args:
        error: The mistakes in a table.
        kind: The settings that the table should have.
    """
    lines: dict[str, str] = {}
    only_words, keys = set(), frozenset(path[-1] for path in _paths(kind))
    for mistake in error.errors():
        path = [str(part) for part in mistake["loc"]]
        if mistake["type"] == "extra_forbidden":
            key, elsewhere = ".".join(path), [each for each in _paths(kind) if each[-1] == path[-1]]
            lines[key] = unknown_key(key, _at(kind, path[:-1]).model_fields)
            if len(elsewhere) == 1:
                lines[key] = f"unknown key '{key}': did you mean '{'.'.join(elsewhere[0])}'?"
            continue
        key = ".".join(part for part in path if part.isidentifier() and part in keys)
        if mistake["type"] == "missing":
            lines[key] = f"{key} is missing."
        elif mistake["type"] in ("model_type", "dict_type"):
            lines[key] = _no_table(key, mistake["input"], kind)
        elif key not in lines:
            message = mistake["msg"][0].lower() + mistake["msg"][1:]
            lines[key] = f"{key} = {mistake['input']!r}: {message}."
            if mistake["type"] == "literal_error":
                only_words.add(key)
        elif mistake["type"] == "literal_error" and key not in only_words:
            # For a union, pydantic reports every branch: a number, or one of some words.
            lines[key] = f"{lines[key].removesuffix('.')} or {mistake['ctx']['expected']}."
    return "\n".join(lines.values())


def _no_table(key: str, given: Any, kind: type[BaseModel]) -> str:
    """Return the message for a value where a table should be."""
    sections = key.split(".")
    section = _at(kind, sections)
    own = () if section is _at(kind, sections[:-1]) else tuple(section.model_fields)
    if isinstance(given, str) and (not own or "name" in own):
        named = f'name = "{given}"'
        how = f"write {key}.{named}, or [{key}] with {named}"
    else:
        how = f"write [{key}]" + (f" with the keys {', '.join(own)}" if own else " with a name")
    return f"{key} = {given!r}: this is a table; {how}."


def _at(kind: type[BaseModel], path: Iterable[str]) -> type[BaseModel]:
    """Return the innermost section on the way of a key."""
    for part in path:
        field = kind.model_fields.get(part)
        kind = (field and _section(field)) or kind
    return kind


def _paths(section: type[BaseModel], *before: str) -> Iterable[tuple[str, ...]]:
    """Return every key with the sections in which it is."""
    for name, field in section.model_fields.items():
        yield (*before, name)
        if (inner := _section(field)) is not None:
            yield from _paths(inner, *before, name)


def _section(field: FieldInfo) -> type[BaseModel] | None:
    """Return the section that a key is; None if it is a value."""
    kinds = (field.annotation, *get_args(field.annotation))
    sections = (k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel))
    return next(sections, None)


def unknown_key(key: str, valid: Iterable[str]) -> str:
    """Return the message for a key that does not exist, with the most similar valid key."""
    return f"unknown key '{key}': {suggestion(key.rpartition('.')[2], valid)}"
