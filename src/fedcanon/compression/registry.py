"""Every compressor by its name in a configuration."""

from fedcanon.compression.base import Compressor, Identity
from fedcanon.compression.clip import Clip
from fedcanon.compression.quantised import Quantise, Sign
from fedcanon.compression.sparse import RandomK, TopK

COMPRESSORS: dict[str, type[Compressor]] = {
    "none": Identity,
    "top_k": TopK,
    "random_k": RandomK,
    "quantise": Quantise,
    "sign": Sign,
    "clip": Clip,
}
"""The compressors by the name they have in a configuration."""
