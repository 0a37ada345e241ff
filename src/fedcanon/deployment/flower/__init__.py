"""Deployments on Flower: the apps of server and clients, the network, and simulations."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
