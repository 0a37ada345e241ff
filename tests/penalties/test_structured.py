"""Groups, matrices, sequences and balls against other ways to compute the same thing."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from fedcanon.errors import FedcanonError
from fedcanon.penalties import (
    L2,
    MCP,
    Cardinality,
    GroupLasso,
    GroupMCP,
    GroupSCAD,
    L1Ball,
    L2Ball,
    LInf,
    Nuclear,
    Penalty,
    Simplex,
    SingularValueMCP,
    SparseGroupLasso,
    TotalVariation,
    WeightedL1,
)
from fedcanon.penalties.group import Groups


def random(*shape: int, seed: int = 0, scale: float = 2) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(shape, generator=generator, dtype=torch.float64)


# groups


def test_slices_blocks_and_lists_describe_the_same_groups() -> None:
    y = random(4, 6)
    rows = GroupLasso(0.9).prox(y, 1.0)
    assert torch.equal(GroupLasso(0.9, groups=6).prox(y.view(-1), 1.0), rows.view(-1))
    listed = tuple(tuple(range(6 * i, 6 * i + 6)) for i in range(4))
    by_list = GroupLasso(0.9, groups=listed).prox(y.view(-1), 1.0)
    torch.testing.assert_close(by_list, rows.view(-1), rtol=1e-14, atol=0)
    columns = GroupLasso(0.9, axis=1).prox(y.T.contiguous(), 1.0).T
    torch.testing.assert_close(columns, rows, rtol=1e-14, atol=0)


@pytest.mark.parametrize("groups", [((3, 0), (2,)), 2])
def test_groups_of_columns_take_their_whole_blocks(groups: Groups) -> None:
    y = random(3, 4)
    columns = groups if isinstance(groups, tuple) else ((0, 1), (2, 3))
    flat = tuple(tuple(4 * row + j for row in range(3) for j in group) for group in columns)
    for kind in (GroupLasso, GroupMCP, GroupSCAD, SparseGroupLasso):
        blocks, listed = kind(0.3, axis=1, groups=groups), kind(0.3, groups=flat)
        expected = listed.prox(y.flatten(), 1.0).view(3, 4)
        torch.testing.assert_close(blocks.prox(y, 1.0), expected, rtol=1e-14, atol=0)
        assert blocks.value(y) == pytest.approx(listed.value(y.flatten()), rel=1e-14)
        bound = listed.subgradient_bound((12,))
        assert blocks.subgradient_bound((3, 4)) == pytest.approx(bound, rel=1e-14)
        assert blocks.zeros(torch.zeros(3, 4)) == listed.zeros(torch.zeros(12))


def test_groups_come_as_tuples_lists_arrays_tensors_and_by_name() -> None:
    expected = GroupLasso(0.5, groups=((0, 2), (1,)), weights=(1.0, 2.0))
    for groups in (
        [[0, 2], [1]],
        [np.array([0, 2]), torch.tensor([1])],
        {"size": range(0, 3, 2), "age": [np.int64(1)]},
    ):
        found = GroupLasso(0.5, groups=groups, weights=np.array([1, 2]))
        assert found == expected
        assert hash(found) == hash(expected)
        assert SparseGroupLasso(0.1, 0.5, groups=groups).groups == expected.groups
    for wrong in ("rows", [0, 1], [["a"]], 2.5, {"a": 3}):
        with pytest.raises(FedcanonError, match="a number, lists of indices, or a dictionary"):
            GroupLasso(0.5, groups=wrong)  # type: ignore[arg-type]


def test_a_weight_of_0_is_no_penalty() -> None:
    x = torch.tensor([0.0, 0.0, 1.0, 0.0])
    assert WeightedL1(1.0, (0.0, 1.0, 1.0, 2.0)).zeros(x) == (2, 3)
    assert WeightedL1(1.0, (0.0, 1.0, 1.0, 2.0)).zeros(x.view(2, 2)) == (2, 3)
    assert GroupLasso(1.0, groups=2, weights=(1.0, 0.0)).zeros(x) == (2, 2)
    assert GroupLasso(1.0, weights=(0.0, 1.0)).zeros(x.view(2, 2)) == (1, 2)
    assert GroupLasso(1.0, groups=((0, 1), (3,)), weights=(0.0, 1.0)).zeros(x) == (1, 1)
    sparse = SparseGroupLasso(1.0, 1.0, groups=2, weights=(1.0, 0.0))
    assert sparse.zeros(x) == (3, 4)


def test_whole_groups_become_exact_zeros() -> None:
    y = torch.tensor([[0.3, 0.4], [3.0, 4.0]])
    # √2 ≈ 1.414 is above the first norm 0.5 and below the second norm 5.
    expected = torch.tensor([[0.0, 0.0], [3.0, 4.0]]) * (1 - math.sqrt(2) / 5)
    torch.testing.assert_close(GroupLasso(1.0).prox(y, 1.0), expected)
    assert torch.equal(GroupLasso(1.0).prox(torch.zeros(2, 2), 1.0), torch.zeros(2, 2))


def test_unlisted_entries_are_left_alone() -> None:
    y = random(5)
    for penalty in (
        GroupLasso(9.0, groups=((0, 3), (1,))),
        SparseGroupLasso(9.0, 9.0, groups=((0, 3), (1,))),
    ):
        p = penalty.prox(y, 1.0)
        assert torch.equal(p[[2, 4]], y[[2, 4]])
        assert not p[[0, 1, 3]].any()
        assert penalty.zeros(p) == (3, 3)


def test_group_mcp_of_groups_of_one_is_mcp() -> None:
    y = random(50)
    torch.testing.assert_close(
        GroupMCP(0.7, 2.0, groups=1).prox(y, 1.0), MCP(0.7, 2.0).prox(y, 1.0), rtol=1e-14, atol=0
    )


def test_group_bounds_are_those_of_the_formulas() -> None:
    assert GroupLasso(0.5).subgradient_bound((3, 4)) == pytest.approx(0.25 * 12)
    assert GroupLasso(0.5, weights=(1.0, 2.0)).subgradient_bound((2, 9)) == pytest.approx(0.25 * 5)
    assert GroupMCP(0.5).subgradient_bound((3, 4)) == pytest.approx(0.25 * 3)
    # each of 3 groups of 4: (0.5·2 + 0.25·2)²
    assert SparseGroupLasso(0.5, 0.25).subgradient_bound((3, 4)) == pytest.approx(3 * 2.25)
    assert L2(0.5).subgradient_bound((3, 4)) == 0.25


def test_norms_of_long_vectors_are_accurate_in_single_precision() -> None:
    y = torch.ones(3_000_000)
    assert L2(1.0).value(y) == pytest.approx(math.sqrt(3e6), rel=1e-6)
    assert L2Ball(2.0).value(L2Ball(2.0).prox(y, 1.0)) == 0
    strided = torch.ones(3_000_000, 2)[:, 0]
    assert L2(1.0).value(strided) == pytest.approx(math.sqrt(3e6), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("power", [-0.7, 0.7])
def test_norms_of_entries_whose_squares_are_no_numbers(dtype: torch.dtype, power: float) -> None:
    limits = torch.finfo(dtype)
    size = float(limits.max) ** power if power > 0 else float(limits.tiny) ** -power
    y = torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=dtype) * size
    close = {"rtol": 4 * limits.eps, "atol": 0.0}
    for x in (y, torch.stack([y, y], -1)[..., 0]):
        assert L2(1.0).value(x) == pytest.approx(5 * size, rel=4 * limits.eps)
        assert GroupLasso(1.0, weights=(1, 1)).value(x) == pytest.approx(
            5 * size, rel=4 * limits.eps
        )
        inside = x if power < 0 else torch.tensor([[0.6, 0.8], [0.0, 0.0]], dtype=dtype)
        torch.testing.assert_close(L2Ball(1.0).prox(x, 1.0), inside, **close)
        listed = GroupLasso(1.0, groups=((0, 1), (2,)), weights=(1, 1)).prox(
            x.flatten(), 0.1 * size
        )
        torch.testing.assert_close(listed, 0.98 * y.flatten(), **close)


@pytest.mark.parametrize(
    ("penalty", "shape", "message"),
    [
        (GroupLasso(), (6,), "needs groups"),
        (GroupLasso(groups=4), (6,), "blocks of 4"),
        (GroupLasso(groups=((0, 9),)), (6,), "index 9"),
        (GroupLasso(groups=2), (3, 2), "3 slices of a tensor of shape .3, 2. along axis 0"),
        (GroupLasso(axis=1, groups=((0, 3),)), (2, 3), "index 3, but .* where indices end at 2"),
        (GroupLasso(axis=2), (2, 3), "no axis 2"),
        (GroupLasso(weights=(1.0,)), (2, 3), "1 weights for 2 groups"),
        (SparseGroupLasso(weights=(1.0,)), (2, 3), "1 weights for 2 groups"),
        (SparseGroupLasso(groups=((0, 9),)), (6,), "index 9"),
        (WeightedL1(1.0, (1.0, 2.0)), (3,), "2 weights"),
        (GroupMCP(), (6,), "GroupMCP acts on a vector of length 6"),
        (Nuclear(), (6,), "needs shape"),
        (SingularValueMCP(shape=(2, 2)), (6,), "2 × 2"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    penalty: Penalty, shape: tuple[int, ...], message: str
) -> None:
    x = torch.ones(shape)
    for call in (
        lambda: penalty.prox_(x, 0.5),
        lambda: penalty.value(x),
        lambda: penalty.subgradient_bound(shape),
    ):
        with pytest.raises(FedcanonError, match=message):
            call()
    assert torch.equal(x, torch.ones(shape))


# matrices


def test_nuclear_prox_satisfies_its_optimality_conditions() -> None:
    y = random(5, 4)
    p = Nuclear(1.5).prox(y, 1.0)
    residual = (y - p) / 1.5
    left, sigma, right = torch.linalg.svd(p, full_matrices=False)
    rank = int((sigma > 1e-9).sum())
    assert 0 < rank < 4
    # A subgradient at p: the product of the singular vectors on its range, at most 1 elsewhere.
    inner = left[:, :rank].T @ residual @ right[:rank].T
    torch.testing.assert_close(inner, torch.eye(rank, dtype=y.dtype), rtol=0, atol=1e-10)
    assert float(torch.linalg.matrix_norm(residual, 2)) <= 1 + 1e-10


def test_singular_values_go_through_the_scalar_prox() -> None:
    y = random(4, 3, 2)
    p = SingularValueMCP(0.7, 2.0).prox(y, 1.0)
    sigma = torch.linalg.svdvals(y.view(4, 6))
    expected = MCP(0.7, 2.0).prox(sigma, 1.0)
    torch.testing.assert_close(torch.linalg.svdvals(p.view(4, 6)), expected, atol=1e-12, rtol=0)
    assert SingularValueMCP(0.7, 2.0).value(y) == pytest.approx(MCP(0.7, 2.0).value(sigma))
    assert SingularValueMCP(0.5).subgradient_bound((4, 3, 2)) == pytest.approx(4 * 0.25)
    assert Nuclear(0.5, shape=(2, 9)).subgradient_bound((18,)) == pytest.approx(2 * 0.25)


# sequences


def hard_sequences() -> dict[str, torch.Tensor]:
    ramp = torch.arange(400, dtype=torch.float64)
    return {
        "noise": random(500),
        "steps": random(5).repeat_interleave(80) + random(400, scale=0.3, seed=1),
        "walk": random(500).cumsum(0),
        "ramp": 0.01 * ramp,
        "bowl": ((ramp - 200) / 50) ** 2,
        "saw": (ramp % 7) - 3,
        "ties": random(300).round(),
        "constant": torch.full((50,), 3.0, dtype=torch.float64),
        "pair": random(2),
    }


@pytest.mark.parametrize("name", hard_sequences())
@pytest.mark.parametrize("t", [1e-3, 0.3, 5.0, 1e4])
def test_total_variation_certificate(name: str, t: float) -> None:
    y = hard_sequences()[name]
    x = TotalVariation(t).prox(y, 1.0)
    u = (y - x).cumsum(0)
    close = 1e-9 * (1 + t)
    assert float(u.abs().max()) <= t + close
    assert abs(float(u[-1])) <= close
    jumps = x.diff()
    moving = jumps != 0
    torch.testing.assert_close(u[:-1][moving], -t * jumps[moving].sign(), rtol=0, atol=close)
    assert float(x.mean()) == pytest.approx(float(y.mean()), abs=close)


def test_total_variation_takes_linear_time() -> None:
    # A slow rise is the worst case of methods that go back: quadratic, minutes at this length.
    y = torch.linspace(0, 1, 1_000_000, dtype=torch.float64)
    x = TotalVariation(1e4).prox(y, 1.0)
    assert float(x.mean()) == pytest.approx(0.5, abs=1e-9)
    assert float(x.diff().min()) >= 0
    # The ends are cut off where the triangles above and below have the area t.
    assert float(x[0]) == pytest.approx(math.sqrt(2 * 1e4 / 1e6), abs=1e-5)


def test_total_variation_bound() -> None:
    assert TotalVariation(0.5).subgradient_bound((10,)) == pytest.approx(0.25 * 34)
    assert TotalVariation(0.5).subgradient_bound((3, 10)) == pytest.approx(3 * 0.25 * 34)
    assert TotalVariation(0.5).subgradient_bound((3, 1)) == 0


# balls and norms


def simplex_by_sorting(y: np.ndarray, radius: float) -> np.ndarray:
    u = np.sort(y)[::-1]
    excess = np.cumsum(u) - radius
    j = np.nonzero(u > excess / np.arange(1, len(u) + 1))[0][-1]
    return np.maximum(y - excess[j] / (j + 1), 0)


@pytest.mark.parametrize("radius", [1e-6, 0.5, 3.0, 1e3])
def test_simplex_l1_ball_and_linf_agree_with_sorting(radius: float) -> None:
    for seed in range(10):
        y = random(40, seed=seed)
        y[:5] = y[5]
        numbers = y.numpy()
        np.testing.assert_allclose(
            Simplex(radius).prox(y, 1.0).numpy(), simplex_by_sorting(numbers, radius), atol=1e-12
        )
        ball = np.sign(numbers) * simplex_by_sorting(np.abs(numbers), radius)
        ball = numbers if np.abs(numbers).sum() <= radius else ball
        np.testing.assert_allclose(L1Ball(radius).prox(y, 1.0).numpy(), ball, atol=1e-12)
        np.testing.assert_allclose(LInf(radius).prox(y, 1.0).numpy(), numbers - ball, atol=1e-12)


def test_projections_of_large_single_precision_vectors_stay_inside() -> None:
    y = 1e3 + torch.randn(200_000, generator=torch.Generator().manual_seed(0))
    for constraint in (Simplex(), L1Ball(), L2Ball()):
        assert constraint.value(y) == math.inf
        assert constraint.value(constraint.prox(y, 1.0)) == 0


@pytest.mark.parametrize(
    "penalty", [L2(0.8), LInf(0.8), GroupLasso(0.5, groups=3), SparseGroupLasso(0.2, 0.3, groups=3)]
)
def test_agrees_with_a_general_solver(penalty: Penalty) -> None:
    y = random(6, seed=3)
    p = penalty.prox(y, 1.0)

    def objective(x: np.ndarray) -> float:
        return penalty.value(torch.tensor(x)) + 0.5 * float(((x - y.numpy()) ** 2).sum())

    options = {"xatol": 1e-9, "fatol": 1e-14, "maxiter": 50_000, "maxfev": 50_000, "adaptive": True}
    start = y.numpy()
    for _ in range(3):
        start = minimize(objective, start, method="Nelder-Mead", options=options).x
    np.testing.assert_allclose(p.numpy(), start, atol=2e-4)
    assert objective(p.numpy()) <= objective(start) + 1e-12


def test_cardinality_keeps_the_largest_even_among_ties() -> None:
    y = torch.tensor([1.0, -3.0, 3.0, 0.5, 3.0])
    p = Cardinality(2).prox(y, 1.0)
    assert int(p.count_nonzero()) == 2
    assert torch.equal(p[p != 0].abs(), torch.tensor([3.0, 3.0]))
    assert Cardinality(2).value(y) == math.inf
