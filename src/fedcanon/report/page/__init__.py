"""Interactive pages about runs: a file that needs no network, or a page that follows a run."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
