"""Trained networks as files for other programs, and pruning that does not change their outputs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
