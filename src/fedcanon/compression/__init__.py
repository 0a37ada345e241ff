"""What a client may do to the vector that it uploads: u_i = C(m − v_i) of FedCanon+."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
