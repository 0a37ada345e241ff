"""Engines move messages between a server and clients."""

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
