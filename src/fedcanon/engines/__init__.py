"""Engines move messages between a server and clients."""

from fedcanon.engines.engine import Collected, Engine, Evaluation, RegroupError, StartOverError
from fedcanon.engines.local import LocalEngine
from fedcanon.engines.messages import Traffic

__all__ = [
    "Collected",
    "Engine",
    "Evaluation",
    "LocalEngine",
    "RegroupError",
    "StartOverError",
    "Traffic",
]
