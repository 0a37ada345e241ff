"""Engines run the clients of an algorithm and carry messages between them and the server."""

from fedcanon.engines.aggregation import Aggregation, Mean, Streaming
from fedcanon.engines.base import Collected, Engine, Evaluation, MakeEngine, Rules
from fedcanon.engines.local import Local, LocalEngine
from fedcanon.engines.traffic import Traffic

__all__ = [
    "Aggregation",
    "Collected",
    "Engine",
    "Evaluation",
    "Local",
    "LocalEngine",
    "MakeEngine",
    "Mean",
    "Rules",
    "Streaming",
    "Traffic",
]
