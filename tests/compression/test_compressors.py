"""The mathematics of each compressor."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcanon.compression import (
    Chain,
    Clip,
    Compressor,
    Identity,
    Lossless,
    PrivateClip,
    Quantise,
    RandomK,
    Sign,
    TopK,
)
from fedcanon.compression.sparse import _drawn, index_type
from fedcanon.engines.work import NO_DRAWS
from fedcanon.errors import FedcanonError

from .vectors import gaussian, square, vectors

quick = settings(max_examples=40, deadline=None, database=None)
ROUNDING = 1 + 1e-5


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# d, entries kept of 5 %, bytes of an index, buckets of 256, bytes of d 4-bit codes, of d bits
SIZES = [
    (1, 1, 1, 1, 1, 1),
    (7, 1, 1, 1, 4, 1),
    (8, 1, 1, 1, 4, 1),
    (9, 1, 1, 1, 5, 2),
    (40, 2, 1, 1, 20, 5),
    (1000, 50, 2, 4, 500, 125),
    (70000, 3500, 4, 274, 35000, 8750),
]


@pytest.mark.parametrize(("dtype", "width"), [(torch.float32, 4), (torch.float64, 8)])
@pytest.mark.parametrize(("d", "k", "index", "buckets", "halves", "eighths"), SIZES)
def test_bytes_and_floats(
    dtype: torch.dtype,
    width: int,
    d: int,
    k: int,
    index: int,
    buckets: int,
    halves: int,
    eighths: int,
) -> None:
    expected: list[tuple[Compressor, int, int]] = [
        (Identity(), d, d * width),
        (TopK(), k, k * (width + index)),
        (RandomK(), k, k * width + 8),
        (Quantise(), buckets, buckets * width + halves),
        (Quantise(bits=2), buckets, buckets * width + math.ceil(d / 4)),
        (Quantise(bits=8), buckets, buckets * width + d),
        (Sign(), 1, width + eighths),
        (Clip(), d, d * width),
    ]
    for compressor, floats, size in expected:
        encoded = compressor(gaussian(d, dtype), generator())
        assert (encoded.floats, encoded.bytes) == (floats, size), compressor


@pytest.mark.parametrize(
    "compressor",
    [
        Identity(),
        Lossless(),
        TopK(0.3),
        RandomK(0.3),
        Quantise(bits=4),
        Sign(),
        Clip(0.1),
        PrivateClip(0.1),
        Chain((Clip(0.1), TopK(0.3))),
        Chain((Clip(0.1), Quantise(bits=4))),
    ],
)
def test_a_compressor_says_whether_it_draws(compressor: Compressor) -> None:
    rng = generator()
    compressor(gaussian(9), rng)
    assert (rng.bit_generator.state != generator().bit_generator.state) == compressor.draws


class NoisyClip(Clip):
    """A compressor that draws, but has inherited that it does not."""

    def encode(self, u: torch.Tensor, rng: np.random.Generator) -> dict[str, torch.Tensor]:
        return super().encode(u + float(rng.normal()), rng)


def test_draws_where_none_were_announced_are_refused() -> None:
    with pytest.raises(FedcanonError, match="let its property draws be True"):
        NoisyClip()(gaussian(9), NO_DRAWS)


def test_identity_copies_nothing() -> None:
    u = gaussian(9)
    encoded = Identity()(u, generator())
    assert encoded.vector is u
    assert encoded.parts == {"values": u}


@given(u=vectors(), fraction=st.floats(0.01, 1))
@quick
def test_top_k_equals_a_stable_sort(u: torch.Tensor, fraction: float) -> None:
    d = u.numel()
    k = max(1, int(fraction * d + 0.5))
    chosen = np.sort(np.argsort(-u.abs().numpy(), kind="stable")[:k])
    encoded = TopK(fraction)(u, generator())
    assert encoded.parts["indices"].tolist() == chosen.tolist()
    expected = np.zeros(d, u.numpy().dtype)
    expected[chosen] = u.numpy()[chosen]
    assert encoded.vector.numpy().tobytes() == expected.tobytes()


@given(u=vectors(), fraction=st.floats(0.01, 1))
@quick
def test_top_k_contracts(u: torch.Tensor, fraction: float) -> None:
    compressor = TopK(fraction)
    bound = (1 - compressor.contraction(u.numel())) * square(u)
    assert square(compressor(u, generator()).vector - u) <= bound * ROUNDING


@pytest.mark.parametrize(
    ("size", "dtype"),
    [
        (1, torch.uint8),
        (256, torch.uint8),
        (257, torch.uint16),
        (65_536, torch.uint16),
        (65_537, torch.uint32),
        (2**32, torch.uint32),
        (2**32 + 1, torch.int64),
    ],
)
def test_indices_take_the_smallest_type(size: int, dtype: torch.dtype) -> None:
    assert index_type(size) == dtype
    if size < 10**6:
        u = torch.zeros(size)
        u[-1] = 1
        encoded = TopK(1e-9)(u, generator())
        assert encoded.parts["indices"].dtype == dtype
        assert torch.equal(encoded.vector, u)


@given(u=vectors(), fraction=st.floats(0.01, 1), seed=st.integers(0, 2**32))
@quick
def test_random_k_keeps_k_entries_as_they_are(u: torch.Tensor, fraction: float, seed: int) -> None:
    d = u.numel()
    k = max(1, int(fraction * d + 0.5))
    compressor = RandomK(fraction)
    places = compressor(torch.ones(d, dtype=u.dtype), generator(seed)).vector
    assert places.unique().tolist() in ([0.0, 1.0], [1.0])
    assert int(places.sum()) == k
    assert compressor.contraction(d) == k / d
    assert torch.equal(compressor(u, generator(seed)).vector, places * u)


@pytest.mark.parametrize(("d", "fraction"), [(1, 0.05), (5, 0.4), (40, 0.05), (40, 0.75)])
def test_random_k_draws_every_entry_equally_often(d: int, fraction: float) -> None:
    """E‖C(u) − u‖² = Σ_j P(j left out) u_j², so this is the contraction, with equality."""
    compressor, rng, draws = RandomK(fraction), generator(3), 3000
    ones = torch.ones(d, dtype=torch.float64)
    frequency = sum(compressor(ones, rng).vector for _ in range(draws)) / draws
    p = compressor.contraction(d)
    margin = 5 * math.sqrt(p * (1 - p) / draws)
    assert float((frequency - p).abs().max()) <= margin


def test_random_k_draws_every_subset_equally_often() -> None:
    compressor, rng, draws = RandomK(0.4), generator(4), 3000
    subsets: dict[tuple[int, ...], int] = {}
    for _ in range(draws):
        places = tuple(compressor(torch.ones(5), rng).vector.nonzero().view(-1).tolist())
        subsets[places] = subsets.get(places, 0) + 1
    assert len(subsets) == math.comb(5, 2)
    margin = 5 * math.sqrt(draws * 0.1 * 0.9)
    assert all(abs(count - draws / 10) <= margin for count in subsets.values())


def test_random_k_with_the_factor_d_over_k_would_be_no_contraction() -> None:
    compressor, rng, u = RandomK(0.25), generator(5), gaussian(40)
    delta = compressor.contraction(40)
    vectors = [compressor(u, rng).vector for _ in range(2000)]
    error, scaled = (
        float(np.mean([square(factor * vector - u) for vector in vectors])) / square(u)
        for factor in (1, 1 / delta)
    )
    # An error is between 0 and ‖u‖²: by Hoeffding its mean is this near with all but 1e-7.
    assert abs(error - (1 - delta)) <= 0.07
    assert scaled > 1
    assert scaled == pytest.approx(1 / delta - 1, rel=0.1)


def test_random_k_draws_the_same_indices_in_every_version_of_numpy() -> None:
    assert _drawn(torch.tensor([7]), 5, 100).tolist() == [6, 32, 37, 96, 98]


def many_draws(
    compressor: Quantise, u: torch.Tensor, draws: int, seed: int
) -> tuple[torch.Tensor, float]:
    """C(u) that many times, one in every row: buckets as long as u, with draws of their own."""
    copies = compressor(u.repeat(draws), generator(seed))
    return copies.vector.view(draws, -1).double(), compressor.contraction(u.numel())


@given(u=vectors(), bits=st.sampled_from([2, 4, 8]), seed=st.integers(0, 2**32))
@quick
def test_quantisation_is_unbiased_before_the_division(
    u: torch.Tensor, bits: int, seed: int
) -> None:
    drawn, delta = many_draws(Quantise(bits, bucket=u.numel()), u, 4000, seed)
    level = math.sqrt(square(u)) / (2 ** (bits - 1) - 1)
    bias = drawn.mean(dim=0) / delta - u
    # A draw is one of two neighbouring levels: by Hoeffding the mean of 4000 is within 0.06
    # of a level with all but 1e-10.
    assert float(bias.abs().max()) <= 0.06 * level


@given(u=vectors(), bits=st.sampled_from([2, 4, 8]), seed=st.integers(0, 2**32))
@quick
def test_quantisation_contracts_in_the_mean(u: torch.Tensor, bits: int, seed: int) -> None:
    drawn, delta = many_draws(Quantise(bits, bucket=u.numel()), u, 2000, seed)
    errors = (drawn - u).square().sum(dim=1)
    margin = 6 * float(errors.std()) / math.sqrt(len(errors))
    assert float(errors.mean()) <= (1 - delta) * square(u) * ROUNDING + margin


def test_quantisation_without_the_division_would_be_no_contraction() -> None:
    drawn, delta = many_draws(Quantise(bits=2, bucket=40), torch.ones(40), 2000, 0)
    assert float((drawn / delta - 1).square().sum(dim=1).mean()) > 40


@given(u=vectors(), bits=st.sampled_from([2, 4, 8]), bucket=st.integers(1, 50))
@quick
def test_quantised_entries_are_neighbouring_levels(u: torch.Tensor, bits: int, bucket: int) -> None:
    compressor = Quantise(bits, bucket)
    s = 2 ** (bits - 1) - 1
    omega = min(min(bucket, len(u)) / (4 * s**2), math.sqrt(min(bucket, len(u))) / s)
    assert compressor.contraction(len(u)) == pytest.approx(1 / (1 + omega), rel=1e-12)
    decoded = compressor(u, generator()).vector.double() * (1 + omega)
    for start in range(0, len(u), bucket):
        exact = u[start : start + bucket].double()
        level = float(exact.norm()) / s
        off = (decoded[start : start + bucket] - exact).abs().max()
        assert float(off) <= level * ROUNDING
        assert float(decoded[start : start + bucket].abs().max()) <= s * level * ROUNDING


class Coins:
    """A generator that always draws the same number."""

    def __init__(self, coin: float) -> None:
        self.coin = coin

    def random(self, shape: tuple[int, ...], dtype: type) -> np.ndarray:
        return np.full(shape, self.coin, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize(("entry", "coin"), [(0.3, 1 - 2**-24), (-0.3, 0.0)])
def test_no_entry_leaves_the_levels(
    dtype: torch.dtype, bits: int, entry: float, coin: float
) -> None:
    """In single precision 127 + (1 − 2⁻²⁴) is 128, a level that does not exist."""
    u, compressor = torch.tensor([entry], dtype=dtype), Quantise(bits)
    decoded = compressor(u, Coins(coin)).vector / compressor.contraction(1)
    torch.testing.assert_close(decoded, u)


def test_the_code_of_zero_is_the_middle_one() -> None:
    u = torch.tensor([0.0, 0.0, 0.0, 5.0])
    codes = Quantise(bits=8, bucket=2)(u, generator()).parts["codes"]
    assert codes.tolist() == [127, 127, 127, 254]


def test_buckets_keep_delta_from_falling_with_the_dimension() -> None:
    assert Quantise(bucket=256).contraction(10**6) == Quantise(bucket=256).contraction(256)
    assert Quantise(bucket=10**6).contraction(10**6) < 0.01 < Quantise().contraction(10**6)


@given(u=vectors())
@quick
def test_the_error_of_signs(u: torch.Tensor) -> None:
    d = u.numel()
    error = square(Sign()(u, generator()).vector - u)
    exact = square(u) - float(u.double().abs().sum()) ** 2 / d
    assert error == pytest.approx(exact, rel=1e-5, abs=1e-5 * square(u))
    assert error <= (1 - Sign().contraction(d)) * square(u) + 1e-5 * square(u)


@given(u=vectors(), limit=st.floats(1e-4, 1e4))
@quick
def test_clipping(u: torch.Tensor, limit: float) -> None:
    norm = math.sqrt(square(u))
    clipped = Clip(limit)(u, generator()).vector
    if norm <= limit:
        assert clipped is u
    else:
        # Never above the limit, not by a rounding error: a server may refuse what is.
        assert limit * (1 - 3e-6) <= math.sqrt(square(clipped)) <= limit
        torch.testing.assert_close(clipped.double(), u.double() * (limit / norm), rtol=2e-6, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_long_vectors_are_clipped_below_the_limit(dtype: torch.dtype) -> None:
    for seed in range(5):
        clipped = Clip(0.7)(gaussian(200_000, dtype, seed), generator()).vector
        assert 0.7 * (1 - 3e-6) <= math.sqrt(square(clipped)) <= 0.7


@pytest.mark.parametrize("kind", [TopK, RandomK])
@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.01, math.nan, math.inf])
def test_fractions_that_mean_nothing_are_refused(
    kind: type[TopK | RandomK], fraction: float
) -> None:
    with pytest.raises(FedcanonError, match=f"{kind.__name__} needs a fraction above 0"):
        kind(fraction)


@pytest.mark.parametrize("bits", [0, 1, 3, 5, 16])
def test_other_bits_are_refused(bits: int) -> None:
    with pytest.raises(FedcanonError, match=f"2, 4 or 8 bits, not {bits}"):
        Quantise(bits=bits)


def test_empty_buckets_are_refused() -> None:
    with pytest.raises(FedcanonError, match="at least 1 entry, not 0"):
        Quantise(bucket=0)


@pytest.mark.parametrize("limit", [0.0, -1.0, math.nan, math.inf])
def test_limits_that_mean_nothing_are_refused(limit: float) -> None:
    with pytest.raises(FedcanonError, match="positive, finite limit"):
        Clip(limit)
