"""Trained networks as files for other programs, and pruning that does not change their outputs."""

from fedcanon.export.formats import Format, save
from fedcanon.export.pruning import prune, unused_inputs
from fedcanon.export.sparse import load_sparse

__all__ = ["Format", "load_sparse", "prune", "save", "unused_inputs"]
