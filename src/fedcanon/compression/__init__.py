"""What a client may do to the vector that it uploads: u_i = C(m − v_i) of FedCanon+."""

from fedcanon.compression.base import Chain, Compressor, Encoded, Identity, decoded
from fedcanon.compression.clip import Clip
from fedcanon.compression.lossless import Lossless
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

__all__ = [
    "COMPRESSORS",
    "Chain",
    "Clip",
    "Compressor",
    "Encoded",
    "Identity",
    "Lossless",
    "Quantise",
    "RandomK",
    "Sign",
    "TopK",
    "decoded",
]
