"""Federated runs on Flower: its simulation runtime (``simulation``), and real deployments."""

from fedcanon.engines.flower.client import client_app
from fedcanon.engines.flower.network import GridNetwork

__all__ = ["GridNetwork", "client_app"]
