"""Federated runs on Flower: its simulation runtime, and real deployments."""

from fedcanon.engines.flower.client import client_app
from fedcanon.engines.flower.network import GridNetwork
from fedcanon.engines.flower.simulation import Simulation

__all__ = ["GridNetwork", "Simulation", "client_app"]
