"""Engines move messages between a server and clients."""

from fedcanon.engines.local import Collected, Evaluation, LocalEngine
from fedcanon.engines.messages import Traffic

__all__ = ["Collected", "Evaluation", "LocalEngine", "Traffic"]
