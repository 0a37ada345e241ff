"""Penalties over groups of features, against skglm and against one another."""

import numpy as np
import pandas as pd
import pytest
import skglm
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.preprocessing import StandardScaler

from fedcanon import FedcanonError
from fedcanon.estimators import FederatedClassifier, FederatedRegressor
from fedcanon.penalties import L1, GroupLasso, GroupMCP, Ridge, SparseGroupLasso, Sum
from tests.estimators.data import spread

SHORT = {"rounds": 30, "local_steps": 1, "tol": 0}
GROUPS = [[0, 4], [1, 2, 9], [5, 7], [3, 6, 8]]


@pytest.mark.slow
def test_group_lasso_on_diabetes():
    X, y, clients = spread(load_diabetes)
    penalty = {"name": "group_lasso", "kappa": 5.0, "groups": GROUPS}
    model = FederatedRegressor(penalty=penalty, local_steps=1, tol=1e-10).fit(X, y, groups=clients)
    roots = np.sqrt([len(group) for group in GROUPS])
    oracle = skglm.GroupLasso(groups=GROUPS, alpha=5.0, weights=roots, tol=1e-12)
    oracle.fit(np.asfortranarray(X), y)
    assert model.coef_ == pytest.approx(oracle.coef_, abs=1e-6)
    assert model.intercept_ == pytest.approx(oracle.intercept_)
    zero = [not model.coef_[group].any() for group in GROUPS]
    assert 0 < sum(zero) < len(GROUPS)


@pytest.mark.slow
def test_group_logistic_regression_on_breast_cancer():
    X, y, clients = spread(load_breast_cancer)
    penalty = GroupLasso(0.1, groups=3, weights=np.ones(10))
    model = FederatedClassifier(penalty=penalty, alpha=12.0, beta=0.3, local_steps=40, tol=1e-8)
    model.fit(X, y, groups=clients)
    indices, pointers = skglm.utils.data.grp_converter(3, 30)
    oracle = skglm.GeneralizedLinearEstimator(
        skglm.datafits.LogisticGroup(grp_ptr=pointers, grp_indices=indices),
        skglm.penalties.WeightedGroupL2(0.1, np.ones(10), pointers, indices),
        skglm.solvers.GroupProxNewton(fit_intercept=True, tol=1e-8, max_iter=100),
    )
    oracle.fit(np.asfortranarray(X), np.where(y == 1, 1.0, -1.0))
    assert model.coef_[0] == pytest.approx(oracle.coef_.ravel(), abs=1e-4)
    zero = ~model.coef_.reshape(10, 3).any(axis=1)
    assert 0 < zero.sum() < 10


@pytest.mark.slow
def test_groups_are_a_number_lists_or_named_lists_of_features():
    X, y, _ = spread(load_diabetes)
    lists = [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    named = {f"pair {j}": np.array(pair) for j, pair in enumerate(lists)}

    def coefficients(penalty, **options):
        return FederatedRegressor(penalty=penalty, **SHORT, **options).fit(X, y).coef_

    expected = coefficients(GroupLasso(10.0, groups=lists))
    assert 0 < (expected == 0).sum() < 10
    table = {"name": "group_lasso", "kappa": 10.0}
    layers = {"layers": [{"match": "weight", **table, "groups": lists}]}
    for penalty in (
        *({**table, "groups": groups} for groups in (np.int64(2), lists, np.array(lists), named)),
        {**table, "groups": torch.tensor(lists), "weights": np.full(5, np.sqrt(2))},
        *(GroupLasso(10.0, groups=groups) for groups in (2, named)),
        Sum((GroupLasso(10.0, groups=lists), Ridge(0.0))),
        {"name": "sum", "terms": [{**table, "groups": lists}, {"name": "ridge", "kappa": 0}]},
        layers,
        SparseGroupLasso(0.0, 10.0, groups=lists),
    ):
        assert coefficients(penalty) == pytest.approx(expected, abs=1e-12)
        assert coefficients(penalty, fit_intercept=False).shape == (10,)


def test_columns_of_a_data_frame_are_named():
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    X = pd.DataFrame(StandardScaler().fit_transform(X), columns=X.columns)
    table = {"name": "group_lasso", "kappa": 10.0}
    names = {"person": ["age", "sex"], "blood": X.columns[4:]}
    numbers = [[0, 1], range(4, 10)]
    first, second = (
        FederatedRegressor(penalty={**table, "groups": groups}, **SHORT).fit(X, y).coef_
        for groups in (names, numbers)
    )
    assert (first == second).all()
    assert not first[:2].any()
    assert first[2:4].all()  # in no group
    names["person"] = ["age", "gender"]
    with pytest.raises(FedcanonError, match="there is no feature called 'gender'"):
        FederatedRegressor(penalty={**table, "groups": names}).fit(X, y)
    with pytest.raises(FedcanonError, match="there is no feature called 'age'"):
        FederatedRegressor(penalty={**table, "groups": [["age"]]}).fit(X.to_numpy(), y)


@pytest.mark.slow
@pytest.mark.parametrize("penalty", [GroupLasso(0.2, groups=2), GroupMCP(0.4, groups=[[0, 1]])])
def test_a_group_takes_its_weights_for_all_classes(penalty):
    X, y, clients = spread(load_iris)
    model = FederatedClassifier(penalty=penalty, **SHORT).fit(X, y, groups=clients)
    assert model.coef_.shape == (3, 4)
    assert not model.coef_[:, :2].any()  # the sepals say less than the petals
    assert model.coef_[:, 2:].all()
    # all penalised weights of a group are one block, whose norm counts once
    sizes = model.records_[-1].objective - model.records_[-1].loss
    blocks = [np.linalg.norm(model.coef_[:, j : j + 2]) for j in (0, 2)]
    expected = 0.2 * np.sqrt(6) * sum(blocks) if isinstance(penalty, GroupLasso) else 0
    assert sizes == pytest.approx(expected, abs=1e-6)


def test_a_network_has_groups_of_features_in_its_first_layer():
    X, y, _ = spread(load_iris)
    options = {"hidden": (6,), "rounds": 3, "tol": 0, "alpha": 0.1, "beta": 0.01, "random_state": 0}
    rule = {"match": "0.weight", "name": "group_lasso", "kappa": 10.0, "groups": [[0, 1]]}
    model = FederatedClassifier(penalty={"layers": [rule]}, **options).fit(X, y)
    first, _, second, _ = model.model_.parameters()
    assert first.shape == (6, 4)
    assert not first[:, :2].any()
    assert first[:, 2:].all()
    assert second.all()
    for penalty in (GroupLasso(groups=2), Sum((L1(), GroupLasso(groups=2)))):
        with pytest.raises(FedcanonError, match="belong to the first layer of a network"):
            FederatedClassifier(penalty=penalty, **options).fit(X, y)
    # without groups each layer has its own rows
    assert FederatedClassifier(penalty=GroupLasso(), **options).fit(X, y).n_iter_ == 3


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (3, r"cannot cut the 10 slices of a tensor of shape \(1, 10\) along axis 1 into blocks"),
        ([[0, 10]], r"index 10, but .* where indices end at 9"),
        ([[0, 1], [1]], "must not be empty or overlap"),
        ([0, 1], r"penalty\.groups = \[0, 1\]"),
        ("rows", "there is no feature called 'rows'"),
    ],
)
def test_groups_that_cannot_be_are_explained(groups, message):
    X, y = load_diabetes(return_X_y=True)
    penalty = {"name": "group_lasso", "kappa": 1.0, "groups": groups}
    with pytest.raises(FedcanonError, match=message):
        FederatedRegressor(penalty=penalty).fit(X, y)


def test_weights_of_features_come_in_any_form():
    X, y, _ = spread(load_diabetes)
    weights = np.arange(10.0)
    first, *others = (
        FederatedRegressor(penalty=penalty, **SHORT).fit(X, y).coef_
        for penalty in (
            {"name": "weighted_l1", "kappa": 1.0, "weights": weights},
            {"name": "weighted_l1", "kappa": 1.0, "weights": tuple(weights)},
            {"name": "weighted_l1", "kappa": 1.0, "weights": torch.from_numpy(weights)},
            {"name": "weighted_l1", "kappa": 1.0, "weights": pd.Series(weights)},
        )
    )
    assert first[0] != 0
    assert (first == 0).any()
    assert all((first == other).all() for other in others)
