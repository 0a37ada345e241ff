"""Tables at sites, prepared alike from sums and counts: no row leaves a site."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
