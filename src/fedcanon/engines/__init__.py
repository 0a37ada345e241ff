"""Engines run the clients of an algorithm and carry messages between them and the server."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
