"""Robust rules against golden values, optimality conditions and what must hold for all vectors."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import minimize

from fedcanon.robustness import RULES

POINTS = torch.tensor([[0, 0], [1, 0], [0, 1], [1, 1], [100, 100]], dtype=torch.float64)
GOLDEN = {
    "filter": 0.5,
    "trimmed-mean": 2 / 3,
    "geometric-median": 0.788675,
    "median": 1.0,
    "nnm+trimmed-mean": 0.5,
    "mean": 20.4,
}


def clouds(least=3):
    """Vectors of some clients, and a number B of them that is less than half."""
    shapes = st.tuples(st.integers(least, 9), st.integers(1, 5), st.integers(0, 10**6))
    return shapes.flatmap(
        lambda shape: st.tuples(
            st.just(torch.from_numpy(np.random.default_rng(shape[2]).normal(size=shape[:2]))),
            st.integers(0, (shape[0] - 1) // 2),
        )
    )


@pytest.mark.parametrize(("name", "expected"), GOLDEN.items())
def test_golden_values(name, expected):
    found = RULES[name](POINTS, 1).vector
    assert found.tolist() == pytest.approx([expected, expected], abs=1e-6)


def test_the_filter_drops_the_outlier_and_says_how_far_it_is():
    found = RULES["filter"](POINTS, 1)
    assert found.dropped.tolist() == [False] * 4 + [True]
    assert float(found.ratios[0]) == pytest.approx(0.5, abs=1e-9)  # the (N − B)-th smallest
    centre = 0.7886751345948129
    rho = 2 * np.hypot(centre, centre)
    assert float(found.ratios[4]) == pytest.approx(np.hypot(*[100 - centre] * 2) / rho, rel=1e-6)


def test_between_rho_and_two_rho_a_vector_is_shortened():
    """Four corners around 0 and one vector beyond ρ: it counts as if it were at ρ."""
    rows = torch.tensor([[1, 0], [-1, 0], [0, 1], [0, -1], [5.0, 0]], dtype=torch.float64)
    found = RULES["filter"](rows, 1)
    centre = RULES["geometric-median"](rows, 1).vector
    far = rows[4] - centre
    rho = 2 * torch.linalg.vector_norm(rows[:4] - centre, dim=1).max()
    assert 1 < float(found.ratios[4]) < 2
    assert not found.dropped.any()
    shortened = rho / far.norm() * far
    expected = centre + ((rows[:4] - centre).sum(0) + shortened) / 5
    assert torch.allclose(found.vector, expected, atol=1e-12)


@pytest.mark.parametrize("name", RULES)
@given(cloud=clouds(), seed=st.integers(0, 99), shift=st.floats(-9, 9))
def test_the_order_of_clients_and_the_origin_do_not_matter(name, cloud, seed, shift):
    rows, bad = cloud
    order = np.random.default_rng(seed).permutation(len(rows))
    found, moved = RULES[name](rows, bad), RULES[name](rows[order] + shift, bad)
    assert torch.allclose(moved.vector, found.vector + shift, atol=1e-5)
    assert torch.allclose(moved.ratios, found.ratios[order], rtol=1e-4, atol=1e-5)
    assert moved.dropped.tolist() == found.dropped[order].tolist()


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("count", [3, 4, 7])
def test_equal_vectors_are_their_own_combination(name, count):
    vector = torch.tensor([0.1, -3.0, 1e-7, 0.0], dtype=torch.float64)
    found = RULES[name](vector.repeat(count, 1), (count - 1) // 2)
    assert torch.allclose(found.vector, vector, rtol=1e-15, atol=0)
    assert not found.dropped.any()
    assert float(found.ratios.max()) <= 1


@given(clouds())
def test_without_bad_clients_the_filter_is_the_mean_to_the_last_bit(cloud):
    rows, _ = cloud
    assert torch.equal(RULES["filter"](rows, 0).vector, rows.mean(0))


@given(clouds(), st.floats(1, 1e6))
def test_the_filter_never_drops_more_than_b(cloud, spread):
    rows, bad = cloud
    rows = rows * torch.logspace(0, float(np.log10(spread)), len(rows), dtype=rows.dtype)[:, None]
    found = RULES["filter"](rows, bad)
    assert int(found.dropped.sum()) <= bad
    assert int((found.ratios > 1).sum()) <= bad  # nor does it shorten more
    assert int((found.ratios <= 0.5 + 1e-12).sum()) >= len(rows) - bad


@pytest.mark.slow
@given(clouds())
def test_scipy_finds_no_point_with_a_smaller_sum_of_distances_than_the_geometric_median(cloud):
    rows, bad = cloud
    numbers = rows.numpy()

    def total(point):
        return np.linalg.norm(numbers - point, axis=1).sum()

    found = RULES["geometric-median"](rows, bad).vector.numpy()
    best = minimize(total, numbers.mean(0), method="Nelder-Mead", options={"maxiter": 500}).fun
    assert total(found) <= best * (1 + 1e-3)  # a hundred steps may not be enough for the last digit


@pytest.mark.parametrize("seed", range(5))
def test_the_geometric_median_is_stationary(seed):
    rows = torch.from_numpy(np.random.default_rng(seed).normal(size=(10, 7)))
    away = rows - RULES["geometric-median"](rows, 3).vector
    units = away / torch.linalg.vector_norm(away, dim=1, keepdim=True)
    assert float(units.sum(0).norm()) < 1e-6


@pytest.mark.slow
@given(clouds())
def test_the_trimmed_mean_is_that_of_scipy_and_the_median_that_of_numpy(cloud):
    rows, bad = cloud
    trimmed = stats.trim_mean(rows.numpy(), (bad + 1e-9) / len(rows), axis=0)
    assert RULES["trimmed-mean"](rows, bad).vector.numpy() == pytest.approx(trimmed, abs=1e-12)
    assert np.array_equal(RULES["median"](rows, bad).vector.numpy(), np.median(rows.numpy(), 0))


@given(clouds())
def test_mixing_with_neighbours_is_that_of_the_definition(cloud):
    rows, bad = cloud
    numbers = rows.numpy()
    mixed = [
        numbers[np.argsort(np.linalg.norm(numbers - own, axis=1))[: len(rows) - bad]].mean(0)
        for own in numbers
    ]
    expected = stats.trim_mean(np.array(mixed), (bad + 1e-9) / len(rows), axis=0)
    found = RULES["nnm+trimmed-mean"](rows, bad).vector.numpy()
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", sorted(RULES.keys() - {"mean"}))
@pytest.mark.parametrize("size", [1e3, 1e12, 1e30])
def test_huge_vectors_of_a_minority_carry_nothing_away(name, dtype, size):
    rng = np.random.default_rng(0)
    rows = torch.from_numpy(rng.normal(size=(10, 6))).to(dtype)
    rows[3], rows[8] = size, -size / 2
    found = RULES[name](rows, 2)
    assert found.vector.dtype == dtype
    assert float(found.vector.abs().max()) < 3
    assert bool((found.ratios[[3, 8]] > 2).all())


@pytest.mark.parametrize("name", RULES)
def test_vectors_without_entries_are_combined_too(name):
    assert RULES[name](torch.zeros(5, 0), 2).vector.shape == (0,)


@pytest.mark.parametrize("name", sorted(set(RULES) - {"mean"}))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("odd", [math.inf, math.nan, 0.9])
def test_absurd_vectors_are_dropped(name, dtype, odd):
    rows = torch.randn(9, 4, dtype=dtype, generator=torch.Generator().manual_seed(0))
    rows[7:] = odd * torch.finfo(dtype).max
    found = RULES[name](rows, 2)
    assert bool(found.vector.isfinite().all())
    assert float(found.vector.abs().max()) < 3
    assert found.dropped[7:].all()
