"""Differential privacy: what a guarantee is, what it costs in noise, and where noise comes from."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
