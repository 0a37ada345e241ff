"""Trained networks as files to ship: formats, sparse storage, and pruning with equal outputs."""

from fedcanon.export.formats import Format, save
from fedcanon.export.pruning import prune, unused_inputs
from fedcanon.export.sparse import load_sparse

__all__ = ["Format", "load_sparse", "prune", "save", "unused_inputs"]
