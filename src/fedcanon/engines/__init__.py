"""Engines move messages between a server and clients."""

from fedcanon.engines.engine import Collected, Engine, Evaluation
from fedcanon.engines.messages import Traffic

__all__ = ["Collected", "Engine", "Evaluation", "Traffic"]
