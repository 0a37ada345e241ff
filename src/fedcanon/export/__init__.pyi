# What fedcanon.export offers, by where it lives.
from .format import Format as Format
from .formats import save as save
from .pruning import prune as prune
from .pruning import unused_inputs as unused_inputs
from .sparse import load_sparse as load_sparse
