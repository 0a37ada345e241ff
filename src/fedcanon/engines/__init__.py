"""Engines move messages between a server and clients."""

from fedcanon.engines.local import Collected, LocalEngine, Traffic

__all__ = ["Collected", "LocalEngine", "Traffic"]
