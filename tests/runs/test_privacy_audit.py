"""The audit of private clients: below what is claimed, and above where a claim would be false."""

import pytest

from tests import privacy_audit
from tests.privacy_audit import PRIVACY, ROUNDS, found_epsilon

LEVEL, CLAIMED = 16.0, 4.38


@pytest.mark.slow
def test_the_audit_never_finds_more_than_is_claimed():
    assert privacy_audit.largest(600) > CLAIMED  # with fewer trials it could not
    assert 0 < found_epsilon(privacy_audit.product(LEVEL), trials=600) < CLAIMED


def test_the_audit_finds_out_clients_that_keep_their_noise():
    """Otherwise the audit would prove nothing."""
    assert found_epsilon(privacy_audit.kept_noise(LEVEL), trials=3000) > CLAIMED


def test_what_is_claimed():
    assert PRIVACY.spent(ROUNDS) == pytest.approx(CLAIMED, abs=0.01)
