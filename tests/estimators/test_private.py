"""Private estimators: near the optimum with a large ε, useful with a small one, else silent."""

import math
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.linear_model import LogisticRegression, PoissonRegressor

from fedcanon import FedcanonError
from fedcanon.estimators import (
    FederatedClassifier,
    FederatedCox,
    FederatedGLM,
    FederatedRegressor,
)
from fedcanon.objectives.linear import LinearObjective
from fedcanon.privacy import ClientPrivacy, RecordPrivacy
from fedcanon.tables.sites import LocalSites
from tests.estimators.data import spread

NEARLY_OPEN = {"epsilon": 1e8, "clip": 20.0, "rounds": 200}
"""Settings with so little noise, and so large a clip, that a model is nearly the optimum.

Errors of coefficients were 2e-4 at most in thirty fits.
"""

PRIVATE = {"epsilon": 3.0}


def classes(size=2000, seed=0):
    """Two classes, of which three of six features of deviation 1 tell."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(size, 6))
    chances = 1 / (1 + np.exp(-(X @ [1.5, -1.0, 0.5, 0, 0, 0] + 0.5)))
    return X, np.where(rng.random(size) < chances, "yes", "no"), rng.integers(4, size=size)


def models(privacy, kappa=0.02):
    return [
        FederatedClassifier(kappa=kappa, privacy=privacy),
        FederatedGLM("binomial", kappa=kappa, privacy=privacy),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("model", models(NEARLY_OPEN), ids=type)
def test_with_hardly_any_noise_it_is_scikit_learns_logistic_regression(model):
    X, y, clients = classes()
    model.fit(X, y, groups=clients)
    oracle = LogisticRegression(
        C=1 / (0.02 * len(y)), l1_ratio=1, solver="saga", tol=1e-10, max_iter=10_000
    )
    # Its solver penalises no intercept either.
    oracle.fit(X, y)
    assert model.coef_ == pytest.approx(oracle.coef_, abs=2e-3)
    assert model.intercept_ == pytest.approx(oracle.intercept_, abs=2e-3)
    assert ((model.coef_ == 0) == (oracle.coef_ == 0)).all()
    assert (model.predict(X) == oracle.predict(X)).mean() > 0.995


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        FederatedRegressor(kappa=0.05, privacy=NEARLY_OPEN),
        FederatedGLM(kappa=0.05, privacy=NEARLY_OPEN),
    ],
    ids=type,
)
def test_with_hardly_any_noise_a_regression_is_the_one_without_privacy(model):
    X, y, clients = spread(load_diabetes)
    y = (y - 150) / 80
    model.fit(X, y, groups=clients)
    exact = clone(model).set_params(privacy=None).fit(X, y, groups=clients)
    assert model.coef_ == pytest.approx(exact.coef_, abs=5e-3)
    assert model.intercept_ == pytest.approx(exact.intercept_, abs=5e-3)
    assert model.score(X, y) == pytest.approx(exact.score(X, y), abs=1e-3)
    assert (exact.privacy_, exact.epsilon_) == (None, None)


@pytest.mark.slow
def test_counts_with_an_offset_are_scikit_learns_rates():
    rng = np.random.default_rng(1)
    X, exposure = rng.normal(size=(1500, 3)), rng.uniform(0.5, 2, 1500)
    y = rng.poisson(exposure * np.exp(X @ [0.5, -0.3, 0.0]))
    model = FederatedGLM("poisson", penalty=None, privacy=NEARLY_OPEN)
    model.fit(X, y, groups=rng.integers(3, size=1500), offset=np.log(exposure))
    oracle = PoissonRegressor(alpha=0, tol=1e-10).fit(X, y / exposure, sample_weight=exposure)
    assert model.coef_ == pytest.approx(oracle.coef_, abs=2e-3)
    assert model.intercept_ == pytest.approx(oracle.intercept_, abs=2e-3)
    assert model.kappa_ is None


@pytest.mark.slow
def test_free_columns_carry_no_penalty_and_keep_their_place():
    X, y, clients = classes()
    frame = pd.DataFrame(X, columns=list("abcdef"))
    model = FederatedGLM("binomial", kappa=10.0, free=["b"], privacy=NEARLY_OPEN)
    model.fit(frame, y, groups=clients)
    assert model.columns_ == list("abcdef")
    assert (model.coef_[0] != 0).tolist() == [False, True, False, False, False, False]


@pytest.mark.slow
def test_three_classes_with_hardly_any_noise_are_those_without_privacy():
    X, y, clients = spread(load_iris)
    clients, slow = clients % 2, {**NEARLY_OPEN, "rounds": 1000, "local_steps": 2}
    model = FederatedGLM("multinomial", kappa=0.05, privacy=slow).fit(X, y, groups=clients)
    exact = FederatedGLM("multinomial", kappa=0.05).fit(X, y, groups=clients)
    assert model.coef_.shape == (3, 4)
    assert model.predict_proba(X) == pytest.approx(exact.predict_proba(X), abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("model", models(PRIVATE, kappa=0.1), ids=type)
def test_a_private_model_is_useful_within_its_budget(model):
    X, y, clients = spread(load_breast_cancer)
    clients = clients % 2  # noise grows with the number of clients
    model.fit(X, y, groups=clients)
    assert model.score(X, y) > 0.85
    assert isinstance(model.privacy_, RecordPrivacy)
    assert model.privacy_.clip == pytest.approx(math.sqrt(31) / 2)
    assert (model.privacy_.delta, model.privacy_.steps, model.n_iter_) == (1e-5, 5, 100)
    assert 2.9 < model.epsilon_ <= 3
    assert model.epsilon_ == model.privacy_.spent(100)
    before = model.coef_.copy()
    assert not np.allclose(model.fit(X, y, groups=clients).coef_, before, rtol=1e-6)


def test_records_tell_what_is_spent_and_nothing_of_the_data():
    X, y, clients = classes()
    privacy = {**PRIVATE, "rounds": 10, "local_steps": 2}
    model = FederatedClassifier(kappa=0.5, privacy=privacy).fit(X, y, groups=clients)
    assert len(model.records_) == 11
    spent = [record.diagnostics["epsilon"] for record in model.records_]
    assert spent == sorted(spent)
    assert spent[-1] == model.epsilon_
    assert all(math.isnan(r.loss) and not r.client_losses for r in model.records_)


@pytest.mark.slow
def test_nothing_but_noisy_gradients_is_asked_of_the_data(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("exact numbers of the data were asked for")

    monkeypatch.setattr(LocalSites, "ask", refuse)
    for name in ("value", "value_and_gradient", "gradient", "hessian", "deviance"):
        monkeypatch.setattr(LinearObjective, name, refuse)
    X, y, clients = classes()
    for model in models(PRIVATE):
        model.fit(X, y, groups=clients)
        assert set(model.predict(X)) == {"no", "yes"}


def test_a_private_model_keeps_no_rows_and_has_no_summary():
    X, y, clients = classes()
    model = FederatedGLM("binomial", kappa=0.02, privacy=PRIVATE).fit(X, y, groups=clients)
    assert not model.study_.sites.names
    with pytest.raises(FedcanonError, match="a private model has no standard errors"):
        model.summary()
    again = pickle.loads(pickle.dumps(model))
    assert (again.predict_proba(X) == model.predict_proba(X)).all()
    assert (again.epsilon_, again.privacy_) == (model.epsilon_, model.privacy_)


@pytest.mark.slow
def test_a_fit_without_privacy_takes_the_guarantee_back():
    X, y, clients = classes()
    for model in models(PRIVATE):
        model.fit(X, y, groups=clients).set_params(privacy=None).fit(X, y, groups=clients)
        assert (model.privacy_, model.epsilon_) == (None, None)


@pytest.mark.parametrize("model", models(PRIVATE, kappa=1e-3), ids=type)
def test_a_selection_by_noise_is_warned_of_once(model):
    X, y, clients = classes()
    with pytest.warns(RuntimeWarning, match="the selection is noise") as found:
        model.fit(X, y, groups=clients)
    assert [warning.filename for warning in found] == [__file__]


@pytest.mark.slow
def test_a_large_kappa_gives_no_warning():
    X, y, clients = classes()
    for model in models(PRIVATE, kappa=0.1):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.fit(X, y, groups=clients)


@pytest.mark.slow
def test_sampled_records_spend_the_same_with_less_noise():
    X, y, clients = classes()
    model = FederatedClassifier(kappa=0.1, privacy={**PRIVATE, "sampling": 0.1})
    model.fit(X, y, groups=clients)
    whole = RecordPrivacy.within(3, 100, clip=1.0, delta=1e-5, steps=5)
    assert model.privacy_.noise < whole.noise / 4
    assert 2.9 < model.epsilon_ <= 3
    assert model.score(X, y) > 0.7


@pytest.mark.slow
@pytest.mark.parametrize("sampling", [1.0, 0.5])
def test_two_hundred_clients_of_different_sizes_are_hidden(sampling):
    X, y, _ = classes(4000)
    clients = np.random.default_rng(0).permutation(np.arange(4000) ** 2 // 80_000)
    privacy = {"epsilon": 8, "level": "client", "clip": 0.1, "rounds": 20, "sampling": sampling}
    for model in models(privacy):
        model.fit(X, y, groups=clients)
        assert isinstance(model.privacy_, ClientPrivacy)
        assert 7.9 < model.epsilon_ <= 8
        assert model.score(X, y) > 0.65


@pytest.mark.slow
def test_a_private_network_takes_its_clip_and_its_step():
    X, y, clients = classes()
    model = FederatedClassifier(
        hidden=(4,), beta=0.2, kappa=1e-3, random_state=0, privacy={**NEARLY_OPEN, "rounds": 20}
    )
    model.fit(X, y, groups=clients)
    assert model.score(X, y) > 0.7


def test_steps_that_are_given_are_obeyed(monkeypatch):
    seen = []

    def record(problem, algorithm, penalty, **_):
        seen.append((algorithm.alpha, algorithm.beta, algorithm.local_steps))
        raise InterruptedError

    monkeypatch.setattr("fedcanon.estimators.private.Federation", record)
    X, y, _ = classes()
    steep = {"name": "mcp", "kappa": 4.0, "gamma": 2.0}  # ρ = 2, and α at most 1/(2ρ)
    for given in (
        {},
        {"alpha": 0.3, "beta": 0.01},
        {"algorithm": {"name": "fedcanon+", "local_steps": 4}},
        {"algorithm": "auto", "local_steps": 7, "privacy": {**PRIVATE, "local_steps": 2}},
        {"penalty": steep},
    ):
        with pytest.raises(InterruptedError):
            FederatedClassifier(**{"privacy": PRIVATE, **given}).fit(X, y)
    assert seen == [
        (None, 0.2, 5),
        (0.3, 0.01, 5),
        (None, 0.25, 4),
        (None, 0.5, 2),
        (0.25, 0.2, 5),
    ]


@pytest.mark.parametrize(
    ("privacy", "words"),
    [
        (3.0, r"privacy is a dictionary such as \{\"epsilon\": 3\}, not 3.0"),
        ({}, "privacy.epsilon is missing"),
        ({"epsilon": 0}, "privacy.epsilon = 0: input should be greater than 0"),
        ({"epsilon": 3, "delta": 1.0}, "privacy.delta = 1.0: input should be less than 1"),
        ({"epsilon": 3, "sampling": 2}, "privacy.sampling = 2: input should be less than"),
        ({"epsilon": 3, "rounds": 0}, "privacy.rounds = 0: input should be greater than 0"),
        ({"epsilon": 3, "clip": math.inf}, "privacy.clip must be positive and finite"),
        ({"epsilon": 3, "level": "site"}, "privacy.level = 'site': input should be 'record' or"),
        ({"epsilon": 3, "noise": 1}, "unknown key 'privacy.noise': use one of clip, delta"),
        ({"epsilom": 3}, "unknown key 'privacy.epsilom': did you mean 'epsilon'?"),
        ({"epsilon": 3, "level": "client"}, "privacy of clients has no default for the clip"),
        (
            {"epsilon": 3, "level": "client", "clip": 1, "delta": 0.1},
            "privacy.delta = 0.1 would permit to name one of 4 clients",
        ),
    ],
)
def test_settings_that_cannot_be_are_explained(privacy, words):
    X, y, clients = classes()
    for model in models(privacy):
        with pytest.raises(FedcanonError, match=words):
            model.fit(X, y, groups=clients)


def test_numbers_of_a_parameter_grid_are_numbers():
    X, y, _ = classes()
    privacy = {"epsilon": np.float32(3), "rounds": np.int64(3), "clip": np.float64(1)}
    assert FederatedClassifier(kappa=9.0, privacy=privacy).fit(X, y).n_iter_ == 3


def test_one_client_cannot_be_hidden():
    X, y, _ = classes()
    for model in models({"epsilon": 3, "level": "client", "clip": 1}):
        with pytest.raises(FedcanonError, match="hides each of several among the others"):
            model.fit(X, y)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"algorithm": "newton"}, "a private model is trained by FedCanon"),
        ({"algorithm": "fedavg"}, "a private model is trained by FedCanon"),
        ({"algorithm": {"name": "fedcanon+", "accelerated": True}}, "acceleration amplifies noise"),
        ({"batch_size": 32}, "leave out batch_size"),
        ({"hidden": (3,)}, "a network has no default for the clip"),
        ({"hidden": (3,), "privacy": NEARLY_OPEN}, "cannot be tried on data that are private"),
    ],
)
def test_what_a_classifier_cannot_keep_private_is_refused(parameters, words):
    X, y, clients = classes()
    model = FederatedClassifier(**{"privacy": PRIVATE, **parameters})
    with pytest.raises(FedcanonError, match=words):
        model.fit(X, y, groups=clients)


@pytest.mark.parametrize(
    ("parameters", "given", "words"),
    [
        ({"kappa": None}, {}, "κ cannot be chosen by data that are private: give kappa"),
        ({"class_weight": "balanced"}, {}, "leave out sample_weight and class_weight"),
        ({"class_weight": {"no": 1, "yes": 2}}, {}, "leave out sample_weight and class_weight"),
        ({}, {"sample_weight": np.ones(2000)}, "leave out sample_weight and class_weight"),
        ({"categories": ["x0"]}, {}, "leave out categories"),
        ({"missing": {"x0": 0.0}}, {}, "leave out missing"),
        ({"indicators": ["x0"]}, {}, "leave out indicators"),
        ({"logs": ["x0"]}, {}, "leave out logs"),
        ({"splines": {"x0": 3}}, {}, "leave out splines"),
    ],
)
def test_what_a_generalised_linear_model_cannot_keep_private_is_refused(parameters, given, words):
    X, y, clients = classes()
    model = FederatedGLM("binomial", **{"kappa": 0.1, "privacy": PRIVATE, **parameters})
    with pytest.raises(FedcanonError, match=words):
        model.fit(X, y, groups=clients, **given)


@pytest.mark.parametrize("values", [np.nan, "text", np.inf, pd.NA])
def test_columns_must_be_numbers_without_gaps(values):
    X, y, clients = classes()
    frame = pd.DataFrame(X, columns=list("abcdef"))
    odd = frame.assign(b=values)
    model = FederatedGLM("binomial", kappa=0.1, privacy=PRIVATE)
    words = "'b' has values that are missing or no numbers: .* by public numbers, to a deviation"
    with pytest.raises(ValueError, match=words):
        model.fit(odd, y, groups=clients)
    model.fit(frame, y, groups=clients)
    with pytest.raises(ValueError, match=words):
        model.predict(odd)


def test_survival_times_are_refused():
    X = np.random.default_rng(0).normal(size=(50, 2))
    y = np.column_stack([np.arange(50) + 1, np.ones(50)])
    with pytest.raises(FedcanonError, match="a Cox model cannot be private, because it has no"):
        FederatedCox(kappa=0.1, privacy=PRIVATE).fit(X, y)


def test_an_estimator_with_privacy_is_cloned_and_set_like_others():
    for model in models(PRIVATE):
        assert clone(model).get_params()["privacy"] == PRIVATE
        assert model.set_params(privacy=None).privacy is None
