# What fedcanon.deployment.flower offers, by where it lives.
from .apps import ClientData as ClientData
from .apps import client_app as client_app
from .apps import part_of_dataset as part_of_dataset
from .apps import server_app as server_app
from .grid import GridNetwork as GridNetwork
from .simulation import FlowerSimulation as FlowerSimulation
