"""What every compressor promises."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from fedcanon.compression import COMPRESSORS, Compressor

from .vectors import ALL, gaussian, square, through_bytes, vectors

table = pytest.mark.parametrize("compressor", ALL, ids=repr)
both = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
quick = settings(max_examples=15, deadline=None, database=None)


@table
@given(u=vectors())
@quick
def test_the_vector_comes_from_the_bytes_that_travel(
    compressor: Compressor, u: torch.Tensor
) -> None:
    kept = u.clone()
    encoded = compressor(u, np.random.default_rng(1))
    assert torch.equal(u, kept)
    assert encoded.vector.dtype == u.dtype
    assert encoded.vector.shape == u.shape
    assert bool(encoded.vector.isfinite().all())
    received, length = through_bytes(encoded.parts)
    assert length == encoded.bytes
    decoded = compressor.decode(received, u.numel())
    assert decoded.dtype == u.dtype
    assert torch.equal(decoded, encoded.vector)


@table
@both
def test_large_vectors_too(compressor: Compressor, dtype: torch.dtype) -> None:
    u = gaussian(70_001, dtype)
    encoded = compressor(u, np.random.default_rng(1))
    received, length = through_bytes(encoded.parts)
    assert length == encoded.bytes
    assert torch.equal(compressor.decode(received, u.numel()), encoded.vector)


@table
@both
@pytest.mark.parametrize("size", [1, 7, 8, 9, 40, 300])
def test_zero_stays_zero(compressor: Compressor, dtype: torch.dtype, size: int) -> None:
    encoded = compressor(torch.zeros(size, dtype=dtype), np.random.default_rng(1))
    assert not encoded.vector.any()
    assert all(bool(part.isfinite().all()) for part in encoded.parts.values())


@table
def test_parts_hold_no_more_memory_than_they_send(compressor: Compressor) -> None:
    encoded = compressor(gaussian(1001), np.random.default_rng(1))
    assert sum(part.untyped_storage().nbytes() for part in encoded.parts.values()) == encoded.bytes


@table
def test_the_same_generator_gives_the_same_parts(compressor: Compressor) -> None:
    u = gaussian(400)
    first, again = (compressor(u, np.random.default_rng(5)) for _ in range(2))
    assert first.parts.keys() == again.parts.keys()
    assert all(torch.equal(first.parts[name], again.parts[name]) for name in first.parts)
    assert torch.equal(first.vector, again.vector)


@table
def test_what_is_not_finite_is_never_hidden(compressor: Compressor) -> None:
    # A random subset shows only what it draws.
    if type(compressor).__name__ == "RandomK":
        return
    for bad in (np.nan, np.inf, -np.inf):
        for position in (0, 17, 39):
            u = gaussian(40)
            u[position] = bad
            assert not compressor(u, np.random.default_rng(1)).vector[position].isfinite()


@table
def test_delta_is_in_its_range(compressor: Compressor) -> None:
    for size in (1, 2, 7, 40, 1000, 70_000):
        assert 0 < compressor.contraction(size) <= 1


@pytest.mark.parametrize("name", COMPRESSORS)
@both
def test_a_state_that_moves_by_the_compressed_difference_arrives(
    name: str, dtype: torch.dtype
) -> None:
    """v ← v + C(m − v) leaves no error floor: what FedCanon+ asks of a compressor."""
    compressor, rng = COMPRESSORS[name](), np.random.default_rng(2)
    m = gaussian(40, dtype)
    v = torch.zeros_like(m)
    for _ in range(700):
        v = v + compressor(m - v, rng).vector
    assert square(m - v) <= 100 * torch.finfo(dtype).eps ** 2 * square(m)


@table
def test_compressors_travel_between_processes(compressor: Compressor) -> None:
    copy = pickle.loads(pickle.dumps(compressor))
    assert copy == compressor
    assert hash(copy) == hash(compressor)


def test_every_name_has_defaults() -> None:
    assert list(COMPRESSORS) == ["none", "top_k", "random_k", "quantise", "sign", "clip"]
    for kind in COMPRESSORS.values():
        assert kind() == kind()
