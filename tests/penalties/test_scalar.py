"""Separable penalties against brute force over a grid of numbers."""

import numpy as np
import pytest
import torch
from skglm.utils.prox_funcs import prox_MCP, prox_SCAD

from fedcanon.penalties import L0, L1, MCP, SCAD, Ridge

from .cases import SCALAR, Case, only, table

GRID_STEP = 1e-4
GRID = np.arange(-80_000, 80_001) * GRID_STEP


def prox(case: Case, y: np.ndarray, step: float) -> np.ndarray:
    """The prox at many numbers, a tensor of the case's size at a time."""
    size = int(np.prod(case.shape))
    padded = np.resize(y, (-(-len(y) // size)) * size)
    blocks = torch.tensor(padded).view(-1, *case.shape)
    return (
        torch.stack([case.penalty.prox(block, step) for block in blocks]).numpy().ravel()[: len(y)]
    )


@table(SCALAR)
def test_value_is_the_sum_of_phi(case: Case) -> None:
    assert case.phi is not None
    for seed in range(5):
        x = case.penalty.prox(case.tensor(seed), 1e-3)
        assert case.penalty.value(x) == pytest.approx(case.phi(x.numpy()).sum(), rel=1e-12)
    if case.constraint:
        assert case.penalty.value(torch.full(case.shape, -9.0)) == np.inf


@table(SCALAR)
def test_prox_is_the_grid_minimiser(case: Case) -> None:
    assert case.phi is not None
    values = case.phi(np.round(GRID, 4))
    rng = np.random.default_rng(0)
    for step in case.steps:
        kinks = np.array([0.0, *case.kinks])
        thresholds = np.array(
            [step * 0.7, np.sqrt(1.4 * step), *(kinks * (1 + step)), *(kinks + step)]
        )
        inputs = np.concatenate([kinks, -kinks, thresholds, rng.uniform(-5, 5, 20)])
        inputs = inputs[np.abs(inputs) < 6]
        found = prox(case, inputs, step)
        for y, p in zip(inputs, found, strict=True):
            objective = values + (GRID - y) ** 2 / (2 * step)
            least = objective.min()
            own = case.phi(np.array(p)) + (p - y) ** 2 / (2 * step)
            assert own <= least + 1e-12
            if case.penalty.in_theory:
                assert abs(p - GRID[objective.argmin()]) <= GRID_STEP / 2 + 1e-9


@only(lambda case: case.penalty.rho > 0, SCALAR)
def test_weak_convexity_constant_is_tight(case: Case) -> None:
    assert case.phi is not None
    x = np.linspace(-6, 6, 6001)
    width = x[1] - x[0]

    def least_curvature(rho: float) -> float:
        return float((np.diff(case.phi(x) + rho / 2 * x**2, 2) / width**2).min())

    assert least_curvature(case.penalty.rho) >= -1e-6
    assert least_curvature(0.95 * case.penalty.rho) < -1e-3


@only(lambda case: isinstance(case.penalty, MCP | SCAD), SCALAR)
def test_the_lipschitz_constant_is_attained(case: Case) -> None:
    step = 0.95 / case.penalty.rho
    y = np.linspace(0, 5, 50_001)
    slopes = np.diff(prox(case, y, step)) / np.diff(y)
    assert slopes.max() == pytest.approx(20, rel=1e-6)


@pytest.mark.parametrize(
    ("penalty", "y", "expected"),
    [
        (MCP(0.7, 2.0, "lambda"), 1.0, 0.6),
        (MCP(0.7, 2.0, "lambda"), 1.5, 1.5),
        (MCP(0.7, 2.0, "lambda"), 0.7, 0.0),
        (SCAD(0.7, 3.7, "lambda"), 1.0, 0.3),
        (SCAD(0.7, 3.7, "lambda"), 2.0, 1.6529411764705881),
        (SCAD(0.7, 3.7, "lambda"), 3.0, 3.0),
        (L1(0.7), -1.0, -0.3),
        (L0(0.7), 1.1832159566, 0.0),
        (L0(0.7), 1.1832159567, 1.1832159567),
        (Ridge(0.7), 1.7, 1.0),
    ],
)
def test_reference_numbers(
    penalty: MCP | SCAD | L1 | L0 | Ridge, y: float, expected: float
) -> None:
    result = penalty.prox(torch.tensor([y], dtype=torch.float64), 1.0)
    assert float(result) == pytest.approx(expected, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("step", [0.3, 1.0, 1.7])
def test_agrees_with_skglm(step: float) -> None:
    y = torch.linspace(-5, 5, 401, dtype=torch.float64)
    mcp = [prox_MCP(v, step, 0.7, 2.0) for v in y.numpy()]
    scad = [prox_SCAD(v, step, 0.7, 3.7) for v in y.numpy()]
    ours = MCP(0.7, 2.0, "lambda").prox(y, step), SCAD(0.7, 3.7, "lambda").prox(y, step)
    np.testing.assert_allclose(ours[0].numpy(), mcp, atol=1e-14)
    np.testing.assert_allclose(ours[1].numpy(), scad, atol=1e-14)


def test_forms_are_the_same_function_of_weight_and_level() -> None:
    y = torch.linspace(-6, 6, 301, dtype=torch.float64)
    # κ·MCP(λ = 1) at step a is MCP(λ = 1) at step aκ.
    assert torch.equal(MCP(0.5, 3.0).prox(y, 2.0), MCP(1.0, 3.0, "lambda").prox(y, 1.0))
    assert torch.equal(SCAD(0.5).prox(y, 2.0), SCAD(1.0, 3.7, "lambda").prox(y, 1.0))
    assert (MCP(0.5).weight, MCP(0.5).level) == (0.5, 1.0)
    assert (SCAD(0.5, form="lambda").weight, SCAD(0.5, form="lambda").level) == (1.0, 0.5)


def test_large_numbers_stay_finite_in_single_precision() -> None:
    y = torch.full((6,), 1e30)
    for name, case in SCALAR.items():
        if not case.constraint:
            p = case.penalty.prox(y.view(case.shape), case.steps[0])
            assert bool(p.isfinite().all()), name
