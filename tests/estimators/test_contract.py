"""scikit-learn's own checks of what an estimator must do."""

import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from fedcanon.estimators import FederatedClassifier, FederatedGLM, FederatedRegressor
from fedcanon.statistics import choosing

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(autouse=True)
def array_api(monkeypatch):
    """Without it scikit-learn skips its check of arrays from other libraries."""
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")


@pytest.fixture
def short_path(monkeypatch):
    """A path of fewer κ, since the checks follow it hundreds of times."""
    monkeypatch.setattr(choosing, "COUNT", 8)


# Short runs, since the checks fit hundreds of times.
@pytest.mark.slow
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
    if not check.func.__name__.endswith("_train"):  # others do not ask how good it is
        estimator = clone(estimator).set_params(rounds=5)
    check(estimator)


@parametrize_with_checks(
    [
        FederatedGLM(family, kappa=0.05)
        for family in ("gaussian", "binomial", "multinomial", "poisson", "gamma")
    ]
    + [FederatedGLM(penalty=None)]
)
def test_scikit_learns_checks_of_a_generalised_linear_model(estimator, check):
    check(estimator)


def own_folds(estimator):
    """The folds are those of the rows of sites, so that repeated rows are in other ones."""
    folded = {"check_sample_weight_equivalence_on_dense_data": "cv is a number of folds"}
    return folded if estimator.choose == "1se" else {}


@pytest.mark.slow
@parametrize_with_checks(
    [FederatedGLM(choose="bic"), FederatedGLM("binomial", cv=2)], expected_failed_checks=own_folds
)
@pytest.mark.usefixtures("short_path")
def test_scikit_learns_checks_of_the_choice_of_kappa(estimator, check):
    check(estimator)
