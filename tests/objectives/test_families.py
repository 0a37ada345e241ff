"""Losses of generalised linear models and of Cox's, against statsmodels and lifelines."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import torch
from lifelines import CoxPHFitter
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from statsmodels.duration.hazard_regression import PHReg
from torch import nn

from fedcanon import FedcanonError
from fedcanon.objectives import FlatModule, ModuleObjective
from fedcanon.objectives.cox import Cox
from fedcanon.objectives.families import FAMILIES, Gamma, NegativeBinomial, Poisson
from fedcanon.objectives.linear import LinearObjective
from fedcanon.objectives.losses import LOSSES
from fedcanon.objectives.multinomial import Multinomial
from fedcanon.penalties import L1, on_weights

M, D = 200, 4
RNG = np.random.default_rng(0)
X = RNG.normal(size=(M, D))
W = np.array([0.4, -0.3, 0.0, 0.2])
ETA = X @ W + 0.3
RESPONSES = {
    "gaussian": ETA + RNG.normal(size=M),
    "binomial": (RNG.uniform(size=M) < 1 / (1 + np.exp(-ETA))).astype(float),
    "poisson": RNG.poisson(np.exp(ETA)).astype(float),
    "gamma": RNG.gamma(2.0, np.exp(ETA) / 2.0),
    "negative_binomial": RNG.negative_binomial(2, 2 / (2 + np.exp(ETA))).astype(float),
    "huber": ETA + RNG.standard_t(2, size=M),
}
WEIGHTS = RNG.uniform(0.2, 3.0, size=M)
OFFSET = RNG.normal(size=M) / 3
OPTIONS = {"negative_binomial": {"dispersion": 0.5}}


def objective(name, features=X, **settings):
    family = FAMILIES[name](**OPTIONS.get(name, {}))
    return LinearObjective(features, RESPONSES[name], family, **settings)


def oracle(name, **settings):
    families = {
        "gaussian": sm.families.Gaussian(),
        "binomial": sm.families.Binomial(),
        "poisson": sm.families.Poisson(),
        "gamma": sm.families.Gamma(sm.families.links.Log()),
        "negative_binomial": sm.families.NegativeBinomial(alpha=0.5),
    }
    return sm.GLM(RESPONSES[name], sm.add_constant(X), family=families[name], **settings)


def newton(problem):
    """The minimiser by Newton's method."""
    x = torch.zeros(problem.layout.size, dtype=torch.float64)
    for _ in range(40):
        x = x - torch.linalg.solve(problem.hessian(x), problem.gradient(x, None))
    return x


@pytest.mark.parametrize("name", sorted(FAMILIES.keys() - {"huber"}))
@pytest.mark.parametrize("weighted", [False, True])
def test_solution_deviance_and_information_are_those_of_statsmodels(name, weighted):
    ours = {"weights": WEIGHTS, "offset": OFFSET} if weighted else {}
    theirs = {"freq_weights": WEIGHTS, "offset": OFFSET} if weighted else {}
    problem, fitted = objective(name, **ours), oracle(name, **theirs).fit(tol=1e-14)
    x = newton(problem)
    expected = np.append(fitted.params[1:], fitted.params[0])
    assert np.allclose(x.numpy(), expected, atol=1e-8, rtol=0)
    assert problem.deviance(x) * problem.total_weight == pytest.approx(fitted.deviance, rel=1e-8)
    assert problem.total_weight == pytest.approx(WEIGHTS.sum() if weighted else M)


@pytest.mark.parametrize("name", sorted(FAMILIES))
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_derivatives_are_those_of_the_value(name, kind):
    problem = objective(name, kind(X), weights=WEIGHTS, offset=OFFSET)
    x = torch.tensor(RNG.normal(size=D + 1) / 2)
    gradient, hessian = problem.gradient(x, None), problem.hessian(x)
    for k in range(D + 1):
        step = torch.zeros_like(x)
        step[k] = 1e-5
        slope = (problem.value(x + step) - problem.value(x - step)) / 2e-5
        assert float(gradient[k]) == pytest.approx(slope, abs=1e-7)
        curve = (problem.gradient(x + step, None) - problem.gradient(x - step, None)) / 2e-5
        assert torch.allclose(hessian[k], curve, atol=2e-2 if name == "huber" else 1e-6)


def test_huber_is_statsmodels_robust_loss():
    problem = objective("huber")
    norm = sm.robust.norms.HuberT(t=1.35)
    x = torch.tensor(RNG.normal(size=D + 1))
    residuals = RESPONSES["huber"] - problem.scores(x)
    assert problem.value(x) == pytest.approx(norm.rho(residuals).mean(), rel=1e-12)


def test_a_batch_of_weighted_samples_is_an_unbiased_part_of_the_whole():
    problem = objective("poisson", weights=WEIGHTS, offset=OFFSET)
    x = torch.tensor([*W.tolist(), 0.1], dtype=torch.float64)
    halves = [problem.gradient(x, torch.arange(k, M, 2)) for k in (0, 1)]
    assert torch.allclose((halves[0] + halves[1]) / 2, problem.gradient(x, None), atol=1e-12)


@pytest.mark.parametrize(
    ("family", "y", "words"),
    [
        (Poisson(), [1.0, -1.0], "counts of at least 0"),
        (Gamma(), [1.0, 0.0], "above 0"),
        (NegativeBinomial(), [1.0, -2.0], "counts of at least 0"),
    ],
)
def test_responses_that_cannot_be_are_refused(family, y, words):
    with pytest.raises(FedcanonError, match=words):
        LinearObjective(np.ones((2, 1)), y, family)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"weights": [1.0, -1.0]}, "at least 0"),
        ({"weights": [0.0, 0.0]}, "not all 0"),
        ({"weights": [1.0]}, "for each of 2 samples"),
        ({"offset": [np.nan, 1.0]}, "finite"),
    ],
)
def test_odd_weights_and_offsets_are_refused(settings, words):
    with pytest.raises(FedcanonError, match=words):
        LinearObjective(np.ones((2, 1)), [1.0, 2.0], Poisson(), **settings)


class TestMultinomial:
    LABELS = RNG.integers(0, 3, size=M)

    @pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
    @pytest.mark.parametrize("intercept", [True, False])
    def test_value_gradient_and_hessian_are_those_of_the_linear_network(self, kind, intercept):
        ours = Multinomial(kind(X), self.LABELS, 3, intercept=intercept)
        flat = FlatModule(nn.Linear(D, 3, bias=intercept, dtype=torch.float64))
        inputs, labels = torch.tensor(X), torch.tensor(self.LABELS)
        theirs = ModuleObjective(flat, nn.CrossEntropyLoss(), inputs, labels)
        x = torch.randn(ours.layout.size, dtype=torch.float64)
        value, gradient = theirs.value_and_gradient(x)
        assert ours.value(x) == pytest.approx(value, rel=1e-12)
        assert torch.allclose(ours.gradient(x, None), gradient, atol=1e-12)
        assert torch.allclose(ours.hessian(x), theirs.hessian(x), atol=1e-12)
        batch = torch.arange(0, M, 3)
        assert torch.allclose(ours.gradient(x, batch), theirs.gradient(x, batch), atol=1e-12)
        outputs = ours.module(x, torch.empty(0))(inputs).detach().numpy()
        assert np.allclose(outputs, ours.scores(x))

    def test_the_weighted_solution_is_that_of_scikit_learn(self):
        ours = Multinomial(X, self.LABELS, 3, weights=WEIGHTS)
        oracle = LogisticRegression(C=1.0, tol=1e-12, max_iter=10_000)
        oracle.fit(X, self.LABELS, sample_weight=WEIGHTS)
        x = torch.tensor(np.append(oracle.coef_.ravel(), oracle.intercept_))
        penalised = ours.gradient(x, None) * ours.total_weight
        penalised[: 3 * D] += x[: 3 * D]
        assert float(penalised.abs().max()) < 1e-5
        assert ours.total_weight == pytest.approx(WEIGHTS.sum())


def test_free_features_are_not_penalised():
    problem = LinearObjective(X, RESPONSES["poisson"], Poisson(), free=2)
    penalty = on_weights(L1(1.0), problem.layout)
    x = torch.ones(D + 1, dtype=torch.float64)
    assert penalty.value(x) == 2.0
    assert torch.equal(penalty.prox_(x.clone(), 5.0), torch.tensor([0, 0, 1, 1, 1.0]).double())
    scores = problem.module(x, torch.empty(0))(torch.tensor(X)).detach().numpy()[:, 0]
    assert np.allclose(scores, problem.scores(x))


class TestCox:
    TIMES = np.ceil(RNG.exponential(np.exp(-(X @ W)), size=M) * 12)  # many ties
    EVENTS = RNG.uniform(size=M) < 0.7

    def cox(self, ties, features=X):
        return Cox(features, self.TIMES, self.EVENTS, ties=ties)

    @pytest.mark.parametrize("ties", ["efron", "breslow"])
    def test_value_gradient_and_hessian_are_those_of_statsmodels(self, ties):
        model, problem = PHReg(self.TIMES, X, self.EVENTS, ties=ties), self.cox(ties)
        for w in (np.zeros(D), W, RNG.normal(size=D)):
            x = torch.tensor(w)
            assert problem.value(x) * M == pytest.approx(-model.loglike(w), rel=1e-10)
            assert np.allclose(problem.gradient(x, None) * M, -model.score(w), atol=1e-8)
            assert np.allclose(problem.hessian(x) * M, -model.hessian(w), atol=1e-7)

    @pytest.mark.filterwarnings("ignore")  # lifelines calls pandas in an old way
    def test_the_sum_over_sites_is_the_stratified_likelihood_of_lifelines(self):
        sites = np.arange(M) % 3
        frame = pd.DataFrame(X, columns=list("abcd"))
        frame = frame.assign(time=self.TIMES, event=self.EVENTS, site=sites)
        fitter = CoxPHFitter().fit(
            frame, "time", "event", strata="site", fit_options={"precision": 1e-10}
        )
        own = [
            Cox(X[sites == s], self.TIMES[sites == s], self.EVENTS[sites == s]) for s in range(3)
        ]
        x = torch.zeros(D, dtype=torch.float64)
        for _ in range(20):
            gradient = sum(o.samples * o.gradient(x, None) for o in own)
            x = x - torch.linalg.solve(sum(o.samples * o.hessian(x) for o in own), gradient)
        assert np.allclose(x, fitter.params_, atol=1e-7)
        value = sum(o.samples * o.value(x) for o in own)
        assert value == pytest.approx(-fitter.log_likelihood_, rel=1e-9)

    def test_sparse_features_give_the_same(self):
        x = torch.tensor(W)
        dense, thin = self.cox("efron"), self.cox("efron", sparse.csr_array(X))
        assert thin.value(x) == pytest.approx(dense.value(x), rel=1e-12)
        assert torch.allclose(thin.gradient(x, None), dense.gradient(x, None), atol=1e-12)
        assert torch.allclose(thin.hessian(x), dense.hessian(x), atol=1e-12)

    def test_mini_batches_and_odd_times_are_refused(self):
        with pytest.raises(FedcanonError, match="no mean over samples"):
            self.cox("efron").gradient(torch.zeros(D, dtype=torch.float64), torch.arange(3))
        with pytest.raises(FedcanonError, match="not negative"):
            Cox(np.ones((2, 1)), [-1.0, 2.0], [1, 0])
        with pytest.raises(FedcanonError, match="0 or 1"):
            Cox(np.ones((2, 1)), [1.0, 2.0], [1, 2])
        with pytest.raises(FedcanonError, match="efron"):
            Cox(np.ones((2, 1)), [1.0, 2.0], [1, 0], ties="exact")


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_a_network_of_one_layer_has_the_loss_and_the_gradient_of_the_linear_model(name):
    linear, options = objective(name), OPTIONS.get(name, {})
    flat = FlatModule(nn.Linear(D, 1, dtype=torch.float64))
    responses = RESPONSES[name]
    network = ModuleObjective(
        flat, LOSSES[name](**options), torch.from_numpy(X), torch.from_numpy(responses)
    )
    x = torch.from_numpy(RNG.normal(size=D + 1))
    value, gradient = network.value_and_gradient(x)
    assert value == pytest.approx(linear.value(x), rel=1e-12)
    assert torch.allclose(gradient, linear.gradient(x, None), atol=1e-12)
