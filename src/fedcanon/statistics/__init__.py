"""Sparse statistics over sites: models, intervals and their quality, from sums alone."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
