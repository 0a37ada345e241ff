"""Imports the user's own classes and functions, which a configuration names package.module:Name."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from fedcanon.errors import FedcanonError


def is_import_path(name: str) -> bool:
    """Tell whether a name has the form package.module:Name."""
    module, colon, attribute = name.partition(":")
    return bool(colon) and all(p.isidentifier() for p in [*module.split("."), attribute])


def import_object(name: str, kind: str) -> Any:
    """Import a class or function; modules in the current directory are found too.

    Args:
        name: Its module and name, as package.module:Name.
        kind: What it is used for, in error messages: "model", "penalty", ….

    Raises:
        FedcanonError: The name has another form, or nothing callable of this name can be imported.
    """
    if not is_import_path(name):
        raise FedcanonError(f"a {kind} of your own is written package.module:Name, not '{name}'.")
    module, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ImportError as error:
        raise FedcanonError(f"the {kind} '{name}' cannot be imported: {error}.") from error
    if not callable(found):
        raise FedcanonError(f"the module {module} has no function or class '{attribute}'.")
    return found
