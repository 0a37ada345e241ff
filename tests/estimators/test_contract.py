"""scikit-learn's own checks of what an estimator must do."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from fedcanon.estimators import FederatedClassifier, FederatedRegressor

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(autouse=True)
def array_api(monkeypatch):
    """Without it scikit-learn skips its check of arrays from other libraries."""
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")


# Short runs, since the checks fit hundreds of times.
@parametrize_with_checks(
    [FederatedClassifier(rounds=30, local_steps=1), FederatedRegressor(rounds=200, local_steps=1)]
)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        FederatedClassifier(hidden=(8,), rounds=100, local_steps=1),
        FederatedRegressor(hidden=(8,), rounds=300, local_steps=1),
    ]
)
def test_scikit_learns_checks_of_a_network(estimator, check):
    check(estimator)
