"""Random vectors, and parts that went through real bytes."""

import hypothesis.strategies as st
import numpy as np
import torch
from torch import Tensor

from fedcanon.compression import Clip, Compressor, Identity, Quantise, RandomK, Sign, TopK

ALL: list[Compressor] = [
    Identity(),
    TopK(),
    TopK(fraction=0.3),
    TopK(fraction=1.0),
    RandomK(),
    RandomK(fraction=0.3),
    RandomK(fraction=1.0),
    Quantise(),
    Quantise(bits=2, bucket=5),
    Quantise(bits=4, bucket=16),
    Quantise(bits=8, bucket=1),
    Sign(),
    Clip(),
    Clip(limit=1e-3),
]

_entry = st.one_of(
    st.integers(-3, 3).map(float),
    st.floats(1e-3, 1e3).flatmap(lambda size: st.sampled_from([size, -size])),
)


@st.composite
def vectors(draw: st.DrawFn, max_size: int = 40) -> Tensor:
    """A vector with zeros and ties, in either precision and of a small, usual or large scale."""
    entries = draw(st.lists(_entry, min_size=1, max_size=max_size))
    scale = draw(st.sampled_from([1.0, 1e-25, 1e20]))
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    return (torch.tensor(entries, dtype=torch.float64) * scale).to(dtype)


def gaussian(size: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(size)).to(dtype)


def square(x: Tensor) -> float:
    """‖x‖², in double precision."""
    return float(x.double().square().sum())


def through_bytes(parts: dict[str, Tensor]) -> tuple[dict[str, Tensor], int]:
    """The parts as a receiver rebuilds them from a stream of bytes, and its length."""
    arrays = {name: part.numpy() for name, part in parts.items()}
    header = [(name, array.dtype, array.size) for name, array in arrays.items()]
    stream = b"".join(array.tobytes() for array in arrays.values())
    rebuilt, start = {}, 0
    for name, dtype, count in header:
        array = np.frombuffer(stream, dtype, count, offset=start).copy()
        rebuilt[name] = torch.from_numpy(array)
        start += array.nbytes
    return rebuilt, len(stream)
