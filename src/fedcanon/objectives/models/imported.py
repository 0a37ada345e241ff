"""Any importable module as a model."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch import nn

from fedcanon.errors import FedcanonError
from fedcanon.importing import import_object
from fedcanon.objectives.models.base import Model, Shape


class Imported(Model):
    """A network of your own, made by factory(shape, classes, **options)."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        """Import the factory.

        Args:
            name: Where it is, as package.module:factory.
            options: Its arguments besides shape and classes.

        Raises:
            FedcanonError: The factory does not exist, or cannot be called with these options.
        """
        factory = import_object(name, "model")
        try:
            inspect.signature(factory).bind((), 0, **options)
        except (TypeError, ValueError) as error:
            given = ", ".join(["shape", "classes", *(f"{key}=…" for key in options)])
            raise FedcanonError(
                f"the model '{name}' cannot be made by {factory.__name__}({given}): {error}."
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
