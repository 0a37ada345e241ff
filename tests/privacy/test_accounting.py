"""The accountant against the golden values of other accountants, exact formulas and laws."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from fedcanon.errors import FedcanonError
from fedcanon.privacy import ClientPrivacy, RecordPrivacy, epsilon, noise_multiplier

DELTA = 1e-5

# s, q, T; then our value, that of the exact distribution of privacy losses (PLD), and Opacus' PRV.
TABLE = [
    (6.0, 1.0, 100, 8.004, 8.004, 8.014),
    (1.0, 0.1, 100, 7.973, 7.047, 7.057),
    (2.0, 0.1, 300, 4.574, 4.183, 4.194),
    (0.8, 0.01, 1000, 3.725, 3.141, 3.151),
]


@pytest.mark.parametrize(("s", "q", "T", "own", "exact", "prv"), TABLE)
def test_golden_values(s, q, T, own, exact, prv):
    found = epsilon(s, T, DELTA, q)
    assert found == pytest.approx(own, abs=6e-4)
    assert found >= exact - 1e-3  # never below what is known to be spent


@pytest.mark.parametrize(("s", "q", "T", "own", "exact", "prv"), TABLE[1:])
def test_prv_of_opacus(s, q, T, own, exact, prv):
    found = epsilon(s, T, DELTA, q, "prv")
    assert found == pytest.approx(prv, abs=2e-3)
    assert exact - 1e-3 <= found <= own


def test_without_sampling_prv_is_not_needed():
    assert epsilon(6.0, 100, DELTA, 1.0, "prv") == epsilon(6.0, 100, DELTA)


@given(
    mu=st.floats(0.05, 20),
    delta=st.floats(1e-12, 0.1),
)
@settings(deadline=None)
def test_exact_epsilon_solves_its_equation(mu, delta):
    """δ(ε) of the Gaussian mechanism (Balle and Wang, 2018), in logarithms where it is tiny."""
    found = epsilon(1 / mu, 1, delta)
    spent = norm.cdf(-found / mu + mu / 2) - math.exp(found + norm.logcdf(-found / mu - mu / 2))
    if found == 0:
        assert spent <= delta * (1 + 1e-6)
    else:
        assert spent == pytest.approx(delta, rel=1e-4, abs=1e-14)


@pytest.mark.slow
@given(
    noise=st.floats(0.5, 50),
    rounds=st.integers(1, 2000),
    sampling=st.sampled_from([0.01, 0.1, 0.5, 1.0]),
)
@settings(deadline=None, max_examples=50)
def test_more_rounds_spend_more_and_more_noise_less(noise, rounds, sampling):
    here = epsilon(noise, rounds, DELTA, sampling)
    assert epsilon(noise, rounds + 1, DELTA, sampling) >= here
    assert epsilon(1.1 * noise, rounds, DELTA, sampling) <= here
    assert here <= epsilon(noise, rounds, DELTA) * 1.2 + 0.1  # sampling never costs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("q", "T", "expected"),
    [
        (1.0, 100, (37.3, 13.9, 6.0)),
        (1.0, 300, (64.6, 24.1, 10.4)),
        (0.1, 100, (4.28, 1.80, 1.00)),
        (0.1, 300, (7.14, 2.77, 1.37)),
    ],
)
def test_noise_for_a_budget(q, T, expected):
    for target, noise in zip((1, 3, 8), expected, strict=True):
        found = noise_multiplier(target, T, DELTA, q)
        assert found == pytest.approx(noise, abs=0.06 if q == 1 else 0.006)
        assert epsilon(found, T, DELTA, q) <= target
        assert epsilon(0.999 * found, T, DELTA, q) > target


def test_nothing_released_and_nothing_hidden():
    assert epsilon(1.0, 0, DELTA) == 0
    assert epsilon(0.0, 1, DELTA) == math.inf


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1.0, 1, DELTA), "noise ≥ 0"),
        ((1.0, 1, 0.0), "0 < delta < 1"),
        ((1.0, 1, DELTA, 0.0), "0 < sampling ≤ 1"),
        ((1.0, 1, DELTA, 1.5), "0 < sampling ≤ 1"),
    ],
)
def test_odd_numbers_are_refused(arguments, message):
    with pytest.raises(FedcanonError, match=message):
        epsilon(*arguments)


def test_impossible_budgets_are_refused():
    with pytest.raises(FedcanonError, match="must be above 0"):
        noise_multiplier(0.0, 10, DELTA)
    with pytest.raises(FedcanonError, match="no noise is enough"):
        noise_multiplier(1e-6, 10**9, 1e-12)


def test_settings_find_the_noise_of_their_budget():
    clients = ClientPrivacy.within(3.0, 100, clip=0.1, delta=DELTA)
    assert clients.noise == pytest.approx(13.9, abs=0.06)
    assert clients.allows(100)
    assert not clients.allows(101)
    records = RecordPrivacy.within(3.0, 10, clip=0.1, delta=DELTA, steps=10)
    assert records.noise == clients.noise  # ten releases in each of ten rounds
    assert records.spent(10) == clients.spent(100)


@pytest.mark.parametrize(
    ("given", "message"),
    [({"clip": 0.0}, "privacy.clip"), ({"forgetting": 2.0}, "privacy.forgetting")],
)
def test_odd_settings_are_refused(given, message):
    with pytest.raises(FedcanonError, match=message):
        ClientPrivacy(**{"clip": 1.0, "noise": 1.0, "delta": DELTA, **given})
