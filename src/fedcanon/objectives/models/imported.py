"""Any importable module as a model."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from fedcanon.errors import FedcanonError
from fedcanon.objectives.models.base import Model, Shape


class Imported(Model):
    """A network of your own, made by factory(shape, classes, **options)."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        """Import ``name``, written package.module:factory; the current directory is searched too.

        Raises:
            FedcanonError: the factory does not exist, or cannot be called with these options.
        """
        module, _, attribute = name.partition(":")
        if not all(part.isidentifier() for part in [*module.split("."), attribute]):
            raise FedcanonError(
                f"a model of your own is written package.module:factory, not '{name}'."
            )
        here = str(Path.cwd())
        if here not in sys.path:
            sys.path.insert(0, here)
        try:
            factory = getattr(importlib.import_module(module), attribute, None)
        except ImportError as error:
            raise FedcanonError(f"the model '{name}' cannot be imported: {error}.") from error
        if not callable(factory):
            raise FedcanonError(f"the module {module} has no function or class '{attribute}'.")
        try:
            inspect.signature(factory).bind((), 0, **options)
        except (TypeError, ValueError) as error:
            given = ", ".join(["shape", "classes", *(f"{key}=…" for key in options)])
            raise FedcanonError(
                f"the model '{name}' cannot be made by {attribute}({given}): {error}."
            ) from None
        self._name, self._factory, self._options = name, factory, options

    def build(self, shape: Shape, classes: int) -> nn.Module:
        module = self._factory(shape, classes, **self._options)
        if not isinstance(module, nn.Module):
            raise FedcanonError(
                f"the model '{self._name}' must be an nn.Module, but its factory returned "
                f"{type(module).__name__}."
            )
        return module
