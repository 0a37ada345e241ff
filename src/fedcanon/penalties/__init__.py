"""Penalties h of the composite problem min f + h: values and exact in-place proximal operators."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
