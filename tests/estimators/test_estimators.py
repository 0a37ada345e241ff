"""What the estimators do beyond scikit-learn's contract: clients, penalties, methods, networks."""

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn import clone, config_context
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fedcanon import FedcanonError
from fedcanon.estimators import FederatedClassifier, FederatedRegressor
from fedcanon.penalties import L1
from tests.estimators.data import spread

SHORT = {"kappa": 0.1, "local_steps": 1, "rounds": 20, "tol": 0}


def test_groups_of_any_kind_are_clients_and_the_solution_does_not_depend_on_them():
    X, y, clients = spread(load_diabetes)
    names = np.array(["north", "south", "east", "west", "sea"], dtype=object)[clients]
    model = FederatedRegressor(kappa=5.0, local_steps=1, tol=1e-8)
    alone, spread_out = clone(model).fit(X, y), model.fit(X, y, groups=names)
    assert len(alone.records_[0].client_losses) == 1
    assert len(spread_out.records_[0].client_losses) == 5
    assert spread_out.coef_ == pytest.approx(alone.coef_, abs=1e-5)
    assert spread_out.records_[-1].cost.bytes_up > 0


def test_clients_weigh_by_samples_or_the_same():
    X, y = np.arange(10.0)[:, None], np.array([0.0] * 6 + [2.5] * 4)
    groups = ["large"] * 6 + ["small"] * 4
    settings = {"kappa": 100.0, "algorithm": "newton"}
    for weights, mean in (("samples", 1.0), ("uniform", 1.25)):
        model = FederatedRegressor(**settings, weights=weights).fit(X, y, groups=groups)
        assert model.intercept_ == pytest.approx(mean)
    with pytest.raises(FedcanonError, match='weights must be "samples" or "uniform"'):
        FederatedRegressor(weights="equal").fit(X, y)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([0, 1], "inconsistent numbers of samples"),
        ([[0, 1]] * 150, "1d array"),
        ([0, np.nan] * 75, "group of sample 1 is missing"),
        (["a", None] * 75, "group of sample 1 is missing"),
    ],
)
def test_groups_that_name_no_client_are_refused(groups, message):
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=message):
        FederatedClassifier().fit(X, y, groups=groups)


def test_sparse_features_give_the_same_model():
    X, y, clients = spread(load_breast_cancer)
    X = np.where(X > 1, X, 0)
    for kind in (FederatedClassifier, FederatedRegressor):
        dense = kind(**SHORT).fit(X, y, groups=clients)
        thin = kind(**SHORT).fit(sparse.csc_matrix(X), y, groups=clients)
        assert thin.coef_ == pytest.approx(dense.coef_, abs=1e-12)
        assert thin.predict(sparse.coo_array(X)) == pytest.approx(dense.predict(X))


@pytest.mark.slow
def test_sparse_features_of_more_classes_are_made_dense():
    X, y, clients = spread(load_iris)
    dense = FederatedClassifier(**SHORT, hidden=(4,), random_state=0)
    scores = dense.fit(X, y, groups=clients).decision_function(X)
    thin = dense.fit(sparse.csr_array(X), y, groups=clients).decision_function(sparse.csr_array(X))
    assert scores.shape == (150, 3)
    assert (scores == thin).all()


@pytest.mark.slow
def test_a_pipeline_and_a_grid_search_pass_the_clients_on():
    X, y, clients = spread(load_breast_cancer)
    pipeline = make_pipeline(StandardScaler(), FederatedClassifier(**SHORT))
    search = GridSearchCV(pipeline, {"federatedclassifier__kappa": np.array([0.3, 0.1])}, cv=2)
    search.fit(X, y, federatedclassifier__groups=clients)
    assert search.best_params_ == {"federatedclassifier__kappa": 0.1}
    assert len(search.best_estimator_[-1].records_[0].client_losses) == 5


@pytest.mark.slow
def test_metadata_routing_gives_the_clients_to_the_method_and_to_the_splitter():
    X, y, clients = spread(load_breast_cancer)
    with config_context(enable_metadata_routing=True):
        model = FederatedClassifier(**SHORT).set_fit_request(groups=True)
        search = GridSearchCV(model, {"kappa": [0.3, 0.1]}, cv=GroupKFold(2))
        search.fit(X, y, groups=clients)
    assert len(search.best_estimator_.records_[0].client_losses) == 5


def test_a_penalty_is_a_name_a_dictionary_or_itself():
    X, y, clients = spread(load_breast_cancer)
    first, *others = (
        FederatedClassifier(**SHORT).set_params(penalty=penalty).fit(X, y, groups=clients)
        for penalty in ("l1", {"name": "l1", "kappa": np.float64(0.1)}, L1(0.1))
    )
    assert 0 < (first.coef_ == 0).sum() < 30
    assert all((first.coef_ == other.coef_).all() for other in others)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"penalty": "elastic_net"}, "has no kappa: give it with its own parameters"),
        ({"penalty": "lassoo"}, "there is no penalty called 'lassoo'"),
        ({"kappa": -1.0}, "kappa at least 0"),
        ({"algorithm": "fedavgg"}, "did you mean 'fedavg'"),
        ({"algorithm": {"name": "pgd", "eta": 1.0}}, "unknown key 'algorithm.eta'"),
        ({"alpha": -1.0}, "alpha"),
        ({"local_steps": 0}, "local_steps"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"rounds": 0}, "number of rounds"),
    ],
)
def test_mistakes_are_explained(parameters, message):
    X, y = load_diabetes(return_X_y=True)
    with pytest.raises(FedcanonError, match=message):
        FederatedRegressor(**parameters).fit(X, y)


@pytest.mark.parametrize(
    "algorithm", ["pgd", "fedavg", "fedcanon", {"name": "feddyn", "beta": 0.05}], ids=str
)
def test_other_methods_take_the_parameters_that_they_have(algorithm):
    X, y, clients = spread(load_breast_cancer)
    options = {"rounds": np.int64(20), "local_steps": np.int64(2), "tol": 0}
    model = FederatedClassifier(algorithm=algorithm, **options).fit(X, y, groups=clients)
    assert model.n_iter_ == 20
    assert model.score(X, y) > 0.9


@pytest.mark.slow
def test_a_network_learns_what_a_linear_model_cannot():
    X, y = make_moons(300, noise=0.1, random_state=0)
    options = {"alpha": 1.0, "beta": 0.2, "local_steps": 5, "tol": 0, "random_state": 0}
    network = FederatedClassifier(hidden=(32,), rounds=300, **options).fit(X, y, groups=y)
    assert network.score(X, y) > 0.95
    assert isinstance(network.model_, torch.nn.Module)
    assert not hasattr(network, "coef_")
    assert network.predict_proba(X).sum(axis=1) == pytest.approx(1)
    linear = network.set_params(hidden=())
    assert linear.score(X, y) > 0.95  # still the network
    assert linear.set_params(rounds=20).fit(X, y).coef_.shape == (1, 2)


@pytest.mark.slow
def test_a_network_regresses():
    X = np.linspace(-1, 1, 100)[:, None]
    options = {"alpha": 0.3, "beta": 0.1, "local_steps": 3, "tol": 0, "random_state": 0}
    model = FederatedRegressor(hidden=(32,), kappa=0.0, rounds=400, **options)
    assert model.fit(X, X[:, 0] ** 2).score(X, X[:, 0] ** 2) > 0.95


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bits():
    X, y, clients = spread(load_iris)
    options = {"hidden": (4,), "batch_size": 8, "rounds": 5, "tol": 0}

    def scores(seed):
        model = FederatedClassifier(**options, random_state=seed).fit(X, y, groups=clients)
        return model.decision_function(X)

    assert (scores(1) == scores(1)).all()
    assert (scores(1) != scores(2)).any()
    state = np.random.RandomState(1)
    assert (scores(state) != scores(state)).any()


def test_training_that_stops_too_early_warns_and_tol_0_does_not():
    X, y, clients = spread(load_breast_cancer)
    with pytest.warns(ConvergenceWarning, match="after 3 rounds"):
        FederatedClassifier(rounds=3).fit(X, y, groups=clients)
    assert FederatedClassifier(rounds=3, tol=0).fit(X, y, groups=clients).n_iter_ == 3


def test_a_start_that_is_the_solution_ends_training():
    X = load_iris().data
    model = FederatedRegressor(fit_intercept=False).fit(X, np.zeros(150))
    assert model.n_iter_ == 1
    assert not model.coef_.any()


def test_one_class_is_refused_in_both_manners():
    with pytest.raises(FedcanonError, match="only one class, 1: a classifier needs two or more"):
        FederatedClassifier().fit([[0.0], [1.0]], [1, 1])
