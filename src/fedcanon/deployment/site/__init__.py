"""A client's machine: a SuperNode and a worker that answers messages, and their supervision."""

from fedcanon.deployment.site.settings import Site, read_site
from fedcanon.deployment.site.supervision import run_site

__all__ = ["Site", "read_site", "run_site"]
