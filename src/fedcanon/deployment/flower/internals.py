"""What is used of Flower beyond its documented interface; it fits the versions that were tested."""

from __future__ import annotations

from functools import partial
from importlib.metadata import version
from types import ModuleType

TESTED = "1.41."
"""How the versions begin with which all this was tested."""


def is_tested() -> bool:
    """Whether the installed Flower is one that was tested."""
    return version("flwr").startswith(TESTED)


def ask_again_soon(module: ModuleType, function: str) -> None:
    """Make a function of Flower ask again soon for a part of a message that is on its way.

    A sender sends the list of parts first. Who looks between waits for a second, then for two, and
    so on: arguments of Flower's function that its callers do not give. This gives the first of them
    a twentieth of a second. Versions that were not tested are left as they are.

    Args:
        module: The module that calls the function.
        function: Its name there.
    """
    if is_tested():
        setattr(module, function, partial(getattr(module, function), initial_backoff=0.05))
