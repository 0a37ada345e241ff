"""Deployments on Flower: the apps of server and clients, the network, and simulations."""

from fedcanon.deployment.flower.apps import ClientData, client_app, part_of_dataset, server_app
from fedcanon.deployment.flower.grid import GridNetwork
from fedcanon.deployment.flower.simulation import FlowerSimulation

__all__ = [
    "ClientData",
    "FlowerSimulation",
    "GridNetwork",
    "client_app",
    "part_of_dataset",
    "server_app",
]
