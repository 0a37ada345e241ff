"""Conditions and bounds of the theorems, and the estimate of L."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcanon import (
    FedCanon,
    FedcanonError,
    Federation,
    theory,
)
from fedcanon.penalties import L1, Zero
from fedcanon.runs.measures import stationarity
from tests.problems import quadratics

positive = st.floats(1e-3, 1e3)


@given(L=positive, ratio=st.floats(0, 5))
def test_the_largest_alpha_meets_its_condition_with_equality(L, ratio):
    rho = ratio * L
    alpha = theory.largest_alpha(L, rho)
    assert alpha * (rho + L) + 4 * (alpha * L) ** 2 == pytest.approx(0.5, rel=1e-9)
    assert alpha * rho < 1


def test_known_values_for_a_convex_penalty():
    assert theory.largest_alpha(2.0, 0.0) == pytest.approx(1 / 8)
    assert theory.largest_beta(2.0, 0.0, 10, 0.1) == pytest.approx(0.0273 / 20, rel=2e-3)
    assert theory.delta(0.5, 1.0) == 4.0
    with pytest.raises(FedcanonError, match="α < 1/ρ"):
        theory.delta(1.0, 1.0)


@given(L=positive, ratio=st.floats(0, 2), K=st.integers(1, 50), mu_part=st.floats(0.01, 1))
def test_the_largest_beta_meets_its_condition_with_equality(L, ratio, K, mu_part):
    rho = ratio * L
    alpha = theory.largest_alpha(L, rho)
    shape = 6 + theory.delta(alpha, rho)
    beta = theory.largest_beta(L, rho, K, alpha)
    assert 192 * shape * (beta * K * L) ** 2 == pytest.approx(1, rel=1e-9)
    mu = mu_part * L
    beta = theory.largest_beta(L, rho, K, alpha, mu)
    assert 12 * shape * (beta * K * L) ** 2 == pytest.approx(min(1 / 16, 1 - alpha * mu / 4))


def test_bounds_use_the_corrected_constants():
    noisy = theory.Setting(L=1.0, alpha=0.25, local_steps=1, variance=1.0)
    assert noisy.theorem1(rounds=10**12, gap=1.0) == pytest.approx(56 + 1 / 8)
    assert noisy.theorem2(rounds=10**6, gap=1.0, mu=0.5) == pytest.approx((28 + 1 / 16) / 0.5)
    drifting = theory.Setting(L=1.0, alpha=0.25, local_steps=1, subgradient_bound=0.3)
    assert drifting.theorem1(10**12, 1.0) == pytest.approx(0.3)
    assert drifting.theorem2(10**6, 1.0, mu=0.5) == pytest.approx(0.3)
    start = theory.Setting(L=1.0, alpha=0.25, local_steps=1)
    assert start.theorem1(rounds=4, gap=1.0, control_error=2.0) == pytest.approx(8 * 1.5)
    assert start.theorem2(rounds=1, gap=1.0, mu=1.0) == pytest.approx(1 - 0.25 / 4)


@pytest.mark.parametrize("penalty", [Zero(), L1(0.05)], ids=str)
def test_theorem_1_holds_for_a_run_within_its_conditions(penalty):
    problem, rounds, K = quadratics(), 200, 5
    alpha = theory.largest_alpha(1.0, 0.0)
    beta = theory.largest_beta(1.0, 0.0, K, alpha)
    federation = Federation(problem, FedCanon(alpha, beta, K), penalty)
    start = problem.start
    # φ* is not known; 0 is below it, which makes the bound larger by gap/(αT) only.
    gap = problem.value(start) + penalty.value(start)
    mean_gradient = problem.value_and_gradient(start)[1]
    control_error = float(
        sum((c.full_gradient(start) - mean_gradient).square().sum() for c in problem.clients)
    ) / len(problem.clients)
    measured = 0.0
    for _ in range(rounds):
        z = federation.model
        gradient = problem.value_and_gradient(z)[1]
        measured += stationarity(penalty, z, gradient, alpha) ** 2 / rounds
        federation.step()
    setting = theory.Setting(
        L=1.0, alpha=alpha, local_steps=K, subgradient_bound=penalty.subgradient_bound((10,))
    )
    assert 0 < measured <= setting.theorem1(rounds, gap, control_error)
