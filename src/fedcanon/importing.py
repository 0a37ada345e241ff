"""Parts of your own: whatever a configuration names as package.module:Name."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from fedcanon.errors import FedcanonError


def is_own(name: str) -> bool:
    """Whether a name is written package.module:Name."""
    module, colon, attribute = name.partition(":")
    return bool(colon) and all(p.isidentifier() for p in [*module.split("."), attribute])


def imported(name: str, kind: str) -> Any:
    """The class or function that ``name`` stands for; the current directory is searched too.

    Args:
        name: Where it is, as package.module:Name.
        kind: What it is to be, for messages: "model", "penalty", ….

    Raises:
        FedcanonError: The name is not written so, or there is nothing of it to import.
    """
    if not is_own(name):
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
