"""Robust rules that combine vectors of which some may be bad, and attacks to try them with."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
