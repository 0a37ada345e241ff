# What fedcanon.compression offers, by where it lives.
from .base import Chain as Chain
from .base import Compressor as Compressor
from .base import Encoded as Encoded
from .base import Identity as Identity
from .base import decoded as decoded
from .base import kept as kept
from .clip import Clip as Clip
from .clip import PrivateClip as PrivateClip
from .lossless import Lossless as Lossless
from .quantised import Quantise as Quantise
from .quantised import Sign as Sign
from .registry import COMPRESSORS as COMPRESSORS
from .sparse import RandomK as RandomK
from .sparse import TopK as TopK
