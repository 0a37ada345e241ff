"""Runs: configuration, training rounds, measures, and the folders in which they are stored."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
