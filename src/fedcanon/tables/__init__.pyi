# What fedcanon.tables offers, by where it lives.
from .preparing import Plan as Plan
from .preparing import prepare as prepare
from .recipe import Recipe as Recipe
from .site import Guards as Guards
from .site import SiteTable as SiteTable
from .sites import LocalSites as LocalSites
from .sites import Sites as Sites
