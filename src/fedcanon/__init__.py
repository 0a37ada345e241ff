"""Composite federated learning: minimise f + h over clients that keep their data.

What is here is imported when it is first used; ``__init__.pyi`` beside this file is the list.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
