"""Proximal Newton: solutions of other programs, steps that are refused, engines, costs."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression
from sklearn.preprocessing import StandardScaler

from fedcanon import FedcanonError, Federation, Logistic, Problem, fit
from fedcanon.algorithms import Facts, Newton, StepRules
from fedcanon.algorithms.quadratic_model import QuadraticModel
from fedcanon.checkpoint import Checkpoints
from fedcanon.data import partition
from fedcanon.engines import Local
from fedcanon.engines.work import CountedProx
from fedcanon.estimators import FederatedClassifier, FederatedRegressor
from fedcanon.estimators.features import over_features
from fedcanon.objectives.least_squares import LeastSquares
from fedcanon.penalties import (
    L1,
    L2,
    MCP,
    SCAD,
    GroupLasso,
    GroupMCP,
    L1Ball,
    LInf,
    LogSum,
    NonNegative,
    Simplex,
    SparseGroupLasso,
    TotalVariation,
    Zero,
    on_weights,
)
from fedcanon.runs.build import build
from fedcanon.runs.config import load_config
from fedcanon.runs.measures import stationarity
from fedcanon.runs.steps import open_steps
from tests.engines.networks import classifiers
from tests.problems import logistics


def standardised(load):
    X, y = load(return_X_y=True)
    return StandardScaler().fit_transform(X), y


def spread(kind, X, y, labels, start=None):
    """Ten clients with different shares of the labels, weighted by their samples."""
    rng = np.random.default_rng(0)
    parts = partition("dirichlet:0.5", torch.from_numpy(labels.astype(np.int64)), 10, rng)
    clients = [kind(X[part.numpy()], y[part.numpy()]) for part in parts]
    if start is None:
        start = torch.zeros(clients[0].layout.size, dtype=torch.float64)
    return Problem(clients, start, [float(len(part)) for part in parts])


def breast_cancer(start=None):
    X, y = standardised(load_breast_cancer)
    return spread(Logistic, X, y, y, start)


def wide():
    """More features than samples, strongly correlated."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 200)) + 2 * rng.standard_normal((80, 1))
    y = X[:, :5].sum(1) + 0.1 * rng.standard_normal(80)
    return X, y, spread(LeastSquares, X, y, y > np.median(y))


def trained(problem, penalty, rounds=15, tolerance=1e-9):
    """The result of at most so many rounds, in which f + h never grew."""
    placed = over_features(on_weights(penalty, problem.layout), chosen=False)
    federation = Federation(problem, Newton(), placed)
    result = fit(federation, rounds, gradient=True, gradient_tolerance=tolerance)
    assert result.last.gradient_norm <= tolerance
    values = [record.objective for record in result.records]
    assert all(b <= a + 1e-14 * abs(a) for a, b in pairwise(values))
    return result


@pytest.mark.slow
@pytest.mark.parametrize("kappa", [0.01, 0.001])
def test_breast_cancer(kappa):
    X, y = standardised(load_breast_cancer)
    result = trained(breast_cancer(), L1(kappa), tolerance=1e-12)
    oracle = LogisticRegression(
        l1_ratio=1, C=1 / (kappa * len(y)), solver="saga", tol=1e-9, max_iter=200_000
    )
    weights = result.vector.numpy()[:-1]
    assert 0 < (weights == 0).sum() < 30
    if kappa == 0.01:  # saga needs a minute for the other one
        coefficients = oracle.fit(X, y).coef_[0]
        assert np.abs(weights - coefficients).max() < 1e-6
        assert ((weights == 0) == (coefficients == 0)).all()


@pytest.mark.slow
@pytest.mark.data("a9a")
@pytest.mark.parametrize("kappa", [1e-3, 1e-4])
def test_sparse_features_of_a9a(kappa):
    named = ("data.name=a9a", "model.name=logistic", "precision=float64", "algorithm.name=newton")
    spread_out = ("data.partition=dirichlet:0.5", "clients.count=10", "clients.weights=samples")
    federation = build(load_config(None, [*named, *spread_out, f"penalty.kappa={kappa}"]))
    result = fit(federation, 15, gradient=True, gradient_tolerance=1e-9)
    assert result.last.gradient_norm <= 1e-9


def test_lasso_with_more_features_than_samples():
    X, y, problem = wide()
    result = trained(problem, L1(0.05), rounds=5)
    oracle = Lasso(0.05, tol=1e-14, max_iter=10**6).fit(X, y)
    assert np.abs(result.vector.numpy()[:-1] - oracle.coef_).max() < 1e-8
    assert result.last.round <= 3  # f is a quadratic: one step is enough


CONVEX = [
    Zero(),
    L2(0.01),
    LInf(0.05),
    GroupLasso(0.01, groups=5),
    SparseGroupLasso(0.005, 0.01, groups=10),
    TotalVariation(0.01),
    NonNegative(),
    Simplex(),
    L1Ball(2.0),
]


@pytest.mark.parametrize("penalty", CONVEX[1:], ids=lambda penalty: type(penalty).__name__)
def test_any_convex_penalty(penalty):
    trained(breast_cancer(), penalty)


@pytest.mark.slow
@pytest.mark.parametrize("penalty", [CONVEX[1], CONVEX[3], CONVEX[5]], ids=str)
def test_any_convex_penalty_where_the_hessian_is_singular(penalty):
    trained(wide()[2], penalty, rounds=5, tolerance=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(
    "penalty", [MCP(0.01), SCAD(0.01), LogSum(0.01), GroupMCP(0.01, groups=5)], ids=str
)
@pytest.mark.parametrize("distance", [0.0, 3.0])
def test_penalties_that_are_not_convex_lead_to_a_stationary_point(penalty, distance):
    rng = np.random.default_rng(1)
    start = distance * torch.from_numpy(rng.standard_normal(31))
    trained(breast_cancer(start), penalty, rounds=40)


def test_a_start_outside_a_constraint():
    start = torch.from_numpy(np.random.default_rng(1).standard_normal(31))
    result = trained(breast_cancer(start), Simplex(), rounds=20)
    assert result.records[0].objective == np.inf
    assert all(np.isfinite(record.objective) for record in result.records[1:])


def test_steps_that_are_too_long_are_refused():
    start = 10 * torch.from_numpy(np.random.default_rng(1).standard_normal(31))
    problem = breast_cancer(start)
    federation = Federation(problem, Newton(), L1(0.01))
    seen = []
    for _ in range(40):
        before = federation.server
        federation.step()
        after = federation.server
        seen.append(after["s"])
        if after["s"] < 1:
            assert after["s"] == before["s"] / 2
            assert torch.equal(after["z"], before["z"])
            assert after["phi"] == before["phi"]
        else:
            assert torch.equal(after["z"], before["y"])
    assert min(seen) < 0.1
    gradient = problem.value_and_gradient(federation.model)[1]
    assert stationarity(federation.penalty, federation.model, gradient, 1.0) < 1e-9


def test_without_a_penalty_half_the_step_is_half_the_way():
    problem = breast_cancer()
    federation = Federation(problem, Newton(), Zero())
    federation.step()
    full = federation.server["y"] - federation.server["z"]
    state = {**federation.server, "phi": -1e9}  # which no point can be below
    federation.server = state
    federation.step()
    half = federation.server["y"] - federation.server["z"]
    assert torch.allclose(half, full / 2, rtol=1e-8, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "penalty", [L1(0.1), L1(1.0), MCP(0.5, 3.0), GroupLasso(0.5, groups=10)], ids=str
)
def test_a_large_and_singular_subproblem_is_solved(penalty):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 500)) + 5 * rng.standard_normal((100, 1))
    y = X[:, :10].sum(1)
    g, H, z = (torch.from_numpy(a) for a in (-X.T @ y / 100, X.T @ X / 100, np.zeros(500)))
    prox = CountedProx(penalty)
    x = QuadraticModel(z, g, H, prox).minimise()
    step = 1 / float(torch.linalg.eigvalsh(H)[-1])
    assert stationarity(penalty, x, g + H @ x, step) <= 1e-11 * float(g.norm())
    assert 10 < prox.calls < 50_000


def test_the_estimators_equal_scikit_learn():
    X, y = load_diabetes(return_X_y=True)
    groups = np.arange(len(y)) % 7
    model = FederatedRegressor(algorithm="newton", kappa=0.5, tol=1e-13).fit(X, y, groups)
    assert np.abs(model.coef_ - Lasso(0.5, tol=1e-15).fit(X, y).coef_).max() < 1e-8
    assert model.n_iter_ <= 3
    net = {"name": "elastic_net", "kappa1": 0.4, "kappa2": 0.1}
    model = FederatedRegressor(algorithm="newton", penalty=net, tol=1e-13).fit(X, y, groups)
    oracle = ElasticNet(0.5, l1_ratio=0.8, tol=1e-15, max_iter=10**5).fit(X, y)
    assert np.abs(model.coef_ - oracle.coef_).max() < 1e-8


@pytest.mark.parametrize("load", [load_breast_cancer, load_wine])
def test_the_classifier_equals_scikit_learn(load):
    """For two classes, and for three, where the Hessian is singular."""
    X, y = standardised(load)
    model = FederatedClassifier(algorithm="newton", kappa=0.05, tol=1e-12, rounds=20)
    model.fit(X, y, groups=np.arange(len(y)) % 5)
    oracle = LogisticRegression(
        l1_ratio=1, C=1 / (0.05 * len(y)), solver="saga", tol=1e-13, max_iter=100_000
    )
    assert np.abs(model.coef_ - oracle.fit(X, y).coef_).max() < 1e-8


def test_single_precision():
    X, y = standardised(load_breast_cancer)
    model = FederatedClassifier(algorithm="newton", kappa=0.01, tol=1e-5, rounds=12)
    model.fit(X.astype(np.float32), y)
    assert model.coef_.dtype == np.float32


def test_floats_and_prox_calls():
    problem = logistics(clients=10, d=6, samples=20)
    federation = Federation(problem, Newton(), L1(0.05))
    federation.step()
    cost = federation.cost
    assert (cost.floats_down, cost.floats_up) == (10 * 6, 10 * (1 + 6 + 21))
    assert cost.bytes_up == 8 * cost.floats_up
    assert cost.client_prox == 0
    assert cost.server_prox > 2


@pytest.mark.slow
def test_it_goes_on_from_a_checkpoint_in_the_middle_of_refused_steps(tmp_path):
    start = 10 * torch.from_numpy(np.random.default_rng(1).standard_normal(31))
    one, two = (Federation(breast_cancer(start), Newton(), L1(0.01)) for _ in range(2))
    for _ in range(4):
        one.step()
    assert one.server["s"] < 1
    Checkpoints(tmp_path).save(4, one.state())
    two.load(Checkpoints(tmp_path).load(torch.device("cpu")))
    for _ in range(10):
        one.step()
        two.step()
        assert torch.equal(one.server["y"], two.server["y"])


@pytest.mark.parametrize("engine", [Local(workers=2), Local(vectorised=True)], ids=str)
def test_other_engines_give_the_same_bits(engine):
    problem = classifiers(hidden=(), dtype=torch.float64)
    here = Federation(problem, Newton(), L1(0.01), batch_size=4)
    there = Federation(problem, Newton(), L1(0.01), engine=engine)
    for _ in range(5):
        here.step()
        there.step()
    there.close()
    assert torch.equal(here.model, there.model)


def test_networks_are_refused_before_the_run():
    with pytest.raises(FedcanonError, match=r"linear models only .* use FedCanon\+"):
        Federation(classifiers(), Newton(), L1(0.1))
    model = FederatedClassifier(algorithm="newton", hidden=(3,))
    with pytest.raises(FedcanonError, match="linear models only"):
        model.fit(*load_wine(return_X_y=True))


def test_models_that_are_too_large_are_refused_before_the_run():
    problem = logistics(clients=2, d=6)
    words = r"with 6 parameters every client would send 28 floats .*max_floats is 27: raise it"
    with pytest.raises(FedcanonError, match=words):
        Federation(problem, Newton(max_floats=27), L1(0.1))
    Federation(problem, Newton(max_floats=28), L1(0.1))
    assert Newton().max_floats == 20_000_000


def test_there_are_no_step_sizes():
    assert Newton().theory(Facts(1.0)) == StepRules({}, {})
    with pytest.raises(FedcanonError, match=r'algorithm.max_floats cannot be "auto"\.$'):
        open_steps({"name": "newton", "max_floats": "auto"})
