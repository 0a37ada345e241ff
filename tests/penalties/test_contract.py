"""What every penalty promises."""

import math
import pickle

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from fedcanon.errors import FedcanonError

from .cases import ALL, Case, only, separable, table, weakly_convex

entry = st.one_of(
    st.floats(-5, 5, allow_subnormal=False),
    st.sampled_from([0.0, 0.5, -0.5, 0.7, 1.0, -1.0, 2.0, 3.7]),
)
quick = settings(max_examples=25, deadline=None, database=None)


def draw(data: st.DataObject, case: Case) -> torch.Tensor:
    size = math.prod(case.shape)
    entries = data.draw(st.lists(entry, min_size=size, max_size=size))
    return torch.tensor(entries, dtype=torch.float64).view(case.shape)


@pytest.mark.slow
@table(ALL)
@given(data=st.data())
@quick
def test_no_drawn_point_is_better_than_the_prox(case: Case, data: st.DataObject) -> None:
    y, other = draw(data, case), draw(data, case)
    step = data.draw(st.sampled_from(case.steps))
    p = case.penalty.prox(y, step)
    rivals = [case.penalty.prox(other, step)]
    if not case.constraint:
        rivals += [other, y, torch.zeros_like(y), p + 1e-3 * other]
    best = case.objective(p, y, step)
    assert math.isfinite(best)
    for rival in rivals:
        assert best <= case.objective(rival, y, step) + 1e-9 * (1 + abs(best))


@table(ALL)
def test_no_point_near_the_prox_is_better(case: Case) -> None:
    for seed, step in enumerate(case.steps):
        y = case.tensor(seed)
        p = case.penalty.prox(y, step)
        best = case.objective(p, y, step)
        single = torch.eye(y.numel(), dtype=y.dtype).view(-1, *case.shape)
        dense = torch.stack([case.tensor(100 + k, scale=1) for k in range(60)])
        for direction in torch.cat([single, -single, dense, dense * (p != 0)]):
            for scale in (1.0, 1e-2, 1e-4):
                rival = p + scale * direction
                if case.constraint:
                    rival = case.penalty.prox(rival, 1e-9)
                assert best <= case.objective(rival, y, step) + 1e-11 * (1 + abs(best))


@only(weakly_convex)
@given(data=st.data())
@quick
def test_prox_is_monotone_and_lipschitz(case: Case, data: st.DataObject) -> None:
    y, z = draw(data, case), draw(data, case)
    step = data.draw(st.sampled_from(case.steps))
    difference = case.penalty.prox(y, step) - case.penalty.prox(z, step)
    limit = float((y - z).norm()) / (1 - step * case.penalty.rho)
    assert float(difference.norm()) <= limit * (1 + 1e-9) + 1e-9
    assert float((difference * (y - z)).sum()) >= -1e-9


@only(lambda case: case.penalty.is_separable)
def test_a_separable_prox_moves_each_entry_by_itself(case: Case) -> None:
    y, step = case.tensor(1), case.steps[0]
    p = case.penalty.prox(y, step).flatten()
    for j in range(y.numel()):
        other = y.clone()
        other.view(-1)[j] += 3.0
        changed = case.penalty.prox(other, step).flatten() != p
        assert not changed[:j].any()
        assert not changed[j + 1 :].any()


def test_which_penalties_are_separable() -> None:
    found = {name for name, case in ALL.items() if case.penalty.is_separable}
    assert found >= {name for name, case in ALL.items() if separable(case)}
    assert not found & {"l2", "group-lasso", "nuclear", "total-variation"}


@pytest.mark.slow
@only(lambda case: case.even)
def test_even_penalties_have_an_odd_prox(case: Case) -> None:
    y = case.tensor(1)
    assert case.penalty.value(-y) == pytest.approx(case.penalty.value(y), rel=1e-12)
    for step in case.steps:
        torch.testing.assert_close(
            case.penalty.prox(-y, step), -case.penalty.prox(y, step), rtol=1e-12, atol=1e-12
        )


@table(ALL)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_prox_works_in_place(case: Case, dtype: torch.dtype) -> None:
    y = case.tensor(2, dtype)
    kept, place = y.clone(), y.data_ptr()
    expected = case.penalty.prox(y, case.steps[1])
    assert torch.equal(y, kept)
    returned = case.penalty.prox_(y, case.steps[1])
    assert returned is y
    assert y.data_ptr() == place
    assert y.dtype == dtype
    assert torch.equal(y, expected)


@table(ALL)
def test_memory_layout_does_not_matter(case: Case) -> None:
    y = case.tensor(3)
    storage = torch.zeros(*case.shape, 2, dtype=y.dtype)
    strided = storage[..., 0].copy_(y)
    assert y.numel() == 1 or not strided.is_contiguous()
    case.penalty.prox_(strided, case.steps[1])
    expected = case.penalty.prox(y, case.steps[1])
    torch.testing.assert_close(strided, expected, rtol=1e-12, atol=1e-12)
    assert not storage[..., 1].any()
    torch.testing.assert_close(
        torch.tensor(case.penalty.value(strided)),
        torch.tensor(case.penalty.value(expected)),
        rtol=1e-9,
        atol=1e-12,
    )


@table(ALL)
def test_single_precision_agrees_with_double(case: Case) -> None:
    for seed, step in enumerate(case.steps):
        y = case.tensor(seed, torch.float32)
        p = case.penalty.prox(y, step)
        exact = case.penalty.prox(y.double(), step)
        torch.testing.assert_close(p.double(), exact, rtol=2e-5, atol=2e-5)
        assert case.penalty.value(p) == pytest.approx(case.penalty.value(exact), rel=1e-4, abs=1e-4)


@table(ALL)
def test_a_constraint_holds_after_its_prox(case: Case) -> None:
    for dtype in (torch.float32, torch.float64):
        y = case.tensor(4, dtype, scale=100)
        assert math.isfinite(case.penalty.value(case.penalty.prox(y, case.steps[0])))


@table(ALL)
@pytest.mark.parametrize(
    ("dtype", "scale"),
    [(torch.float32, s) for s in (1e19, 1e37)] + [(torch.float64, s) for s in (1e17, 1e155, 1e300)],
    ids=str,
)
def test_the_prox_of_huge_entries_is_right(case: Case, dtype: torch.dtype, scale: float) -> None:
    y, step = case.tensor(10, dtype, scale), case.steps[0]
    strided = torch.zeros(*case.shape, 2, dtype=dtype)[..., 0].copy_(y)
    bound = case.penalty.subgradient_bound(case.shape)
    for p in (case.penalty.prox(y, step), case.penalty.prox_(strided, step)):
        assert bool(p.isfinite().all())
        subgradient = (y - p).double() / scale / step
        if bound < math.inf:  # much less than a rounding error, beside such entries
            assert float(subgradient.abs().max()) <= 10 * torch.finfo(dtype).eps / step
        if case.constraint:
            assert math.isfinite(case.penalty.value(p))
        if case.constraint and case.penalty.in_theory:
            for seed in range(20, 40):  # no way into the set leads towards y
                way = (case.penalty.prox(case.tensor(seed, dtype), step) - p).double()
                way /= way.abs().max().clamp(min=1e-30)
                assert float((subgradient * way).sum()) <= 1e-5 / step


@table(ALL)
def test_integers_are_refused(case: Case) -> None:
    for dtype in (torch.int64, torch.int32, torch.bool):
        y = torch.ones(case.shape, dtype=dtype)
        for prox in (case.penalty.prox, case.penalty.prox_):
            with pytest.raises(FedcanonError, match=f"floating-point numbers, not of {dtype}"):
                prox(y, case.steps[0])
        assert torch.equal(y, torch.ones(case.shape, dtype=dtype))


@only(lambda case: case.fits_empty)
def test_the_prox_of_an_empty_tensor_is_empty_and_its_value_is_0(case: Case) -> None:
    for y in (case.empty(), case.empty().float()):
        assert case.penalty.value(y) == 0
        assert case.penalty.prox_(y, case.steps[0]) is y
        assert y.shape == case.empty().shape
        assert case.penalty.zeros(y) == (0, 0)


@only(lambda case: not case.fits_empty)
def test_an_empty_tensor_is_refused_where_the_parameters_ask_for_entries(case: Case) -> None:
    y = case.empty()
    for call in (case.penalty.value, lambda y: case.penalty.prox(y, case.steps[0])):
        with pytest.raises(FedcanonError, match=r"\.$"):
            call(y)


@table(ALL)
def test_not_a_number_is_never_hidden(case: Case) -> None:
    for dtype in (torch.float32, torch.float64):
        for position in range(math.prod(case.shape)):
            y = case.tensor(5, dtype)
            y.view(-1)[position] = math.nan
            p = case.penalty.prox_(y, case.steps[0]).view(-1)
            assert not p[position].isfinite()


@only(separable)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensor_formula_equals_kernel(case: Case, dtype: torch.dtype) -> None:
    special = torch.tensor([0.0, -0.0, 1e-30, 1e15, -1e15, math.nan], dtype=dtype)
    kinks = torch.tensor([0.5, 0.7, 1.0, 2.0, 2.59, 3.7], dtype=dtype)
    for step in case.steps:
        for y in (case.tensor(6, dtype), special.view(case.shape), -kinks.view(case.shape)):
            formula = case.penalty._formula(y, step)
            close = 1e-6 if dtype == torch.float32 else 1e-14
            torch.testing.assert_close(
                case.penalty.prox(y, step),
                formula,
                rtol=20 * close,
                atol=20 * close,
                equal_nan=True,
            )


@only(lambda case: case.penalty.rho > 0)
def test_steps_from_one_over_rho_on_are_refused(case: Case) -> None:
    limit = 1 / case.penalty.rho
    y = case.tensor(7)
    for step in (limit, 2 * limit):
        with pytest.raises(FedcanonError, match=f"1/ρ = {limit:.4g}"):
            case.penalty.prox_(y, step)
    assert torch.equal(y, case.tensor(7))


@table(ALL)
def test_steps_that_mean_nothing_are_refused_and_zero_is_the_identity(case: Case) -> None:
    y = case.tensor(8)
    for step in (-0.1, math.nan, math.inf):
        with pytest.raises(FedcanonError, match="finite step"):
            case.penalty.prox_(y, step)
    assert torch.equal(case.penalty.prox(y, 0.0), y)


@table(ALL)
def test_subgradients_stay_below_their_bound(case: Case) -> None:
    bound = case.penalty.subgradient_bound(case.shape)
    if case.constraint or not case.penalty.in_theory:
        assert bound == math.inf
        return
    assert bound >= 0
    for seed in range(20):
        for step in case.steps:
            y = case.tensor(seed, scale=0.2 * (1 + seed))
            subgradient = (y - case.penalty.prox(y, step)) / step
            assert float(subgradient.square().sum()) <= bound * (1 + 1e-9) + 1e-9


@only(lambda case: 0 < case.penalty.subgradient_bound(case.shape) < math.inf)
def test_the_value_grows_no_faster_than_the_bound(case: Case) -> None:
    limit = math.sqrt(case.penalty.subgradient_bound(case.shape))
    for seed in range(20):
        x = case.tensor(seed, scale=0.1 * (1 + seed))
        z = x + 1e-3 * case.tensor(seed + 50)
        rise = abs(case.penalty.value(z) - case.penalty.value(x))
        assert rise <= limit * float((z - x).norm()) * (1 + 1e-9)


@table(ALL)
def test_penalties_travel_between_processes(case: Case) -> None:
    y = case.tensor(9)
    expected = case.penalty.prox(y, case.steps[0])
    copy = pickle.loads(pickle.dumps(case.penalty))
    assert copy == case.penalty
    assert hash(copy) == hash(case.penalty)
    assert torch.equal(copy.prox(y, case.steps[0]), expected)


@table(ALL)
def test_zeros_counts_the_penalised_zeros(case: Case) -> None:
    zeros, penalised = case.penalty.zeros(torch.zeros(case.shape))
    assert zeros == penalised > 0
    assert case.penalty.zeros(torch.ones(case.shape)) == (0, penalised)
