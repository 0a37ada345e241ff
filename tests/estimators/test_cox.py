"""Cox's model over sites, against lifelines on the pooled data."""

import warnings

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter
from lifelines.utils import concordance_index
from sklearn import clone
from sklearn.model_selection import GridSearchCV

import fedcanon
from fedcanon import FedcanonError
from fedcanon.estimators import FederatedCox
from fedcanon.statistics.choosing import automatic_kappas, folds_of, validate
from fedcanon.statistics.site import StudySite
from fedcanon.statistics.study import Question, begin_study
from fedcanon.tables.preparing import Plan
from fedcanon.tables.site import NO_GUARDS
from fedcanon.tables.sites import LocalSites


def survival(size=500):
    """Times with ties, at three sites with other hazards; x2 does not matter."""
    rng = np.random.default_rng(4)
    X = pd.DataFrame({"x0": rng.normal(3, 2, size), "x1": rng.normal(size=size)})
    X["x2"] = rng.normal(0, 10, size)
    X["arm"] = rng.choice(["new", "old"], size, p=[0.4, 0.6])
    sites = rng.choice(3, size)
    risk = 0.3 * X["x0"] - 0.6 * X["x1"] - 0.5 * (X["arm"] == "new") + sites
    times = np.ceil(20 * rng.exponential(np.exp(-risk)))
    ends = rng.integers(5, 60, size)
    return X, np.minimum(times, ends), times <= ends, sites


X, TIMES, EVENTS, SITES = survival()
Y = np.column_stack([TIMES, EVENTS])


@pytest.fixture(scope="module")
def oracle():
    table = X.assign(arm=(X["arm"] == "new").astype(float), t=TIMES, e=EVENTS, site=SITES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of pandas, for how lifelines uses it
        options = {"fit_options": {"precision": 1e-12}}
        return CoxPHFitter().fit(table, "t", "e", strata=["site"], **options)


def test_the_strata_of_lifelines_are_sites(oracle):
    model = FederatedCox(kappa=1e-9).fit(X, Y, groups=SITES)
    assert model.columns_ == ["x0", "x1", "x2", "arm = new"]
    assert model.coef_ == pytest.approx(oracle.params_.to_numpy(), abs=1e-6)
    table = model.summary()
    assert table["error"].to_numpy() == pytest.approx(oracle.standard_errors_.to_numpy(), rel=1e-5)
    assert table["p"].to_numpy() == pytest.approx(oracle.summary["p"].to_numpy(), rel=1e-4)
    scores = model.predict(X)
    columns = X.assign(arm=(X["arm"] == "new").astype(float)).astype(float)
    assert scores == pytest.approx(columns.to_numpy() @ oracle.params_.to_numpy(), abs=1e-5)
    assert model.score(X, Y) == pytest.approx(concordance_index(TIMES, -scores, EVENTS))
    assert fedcanon.FederatedCox is FederatedCox
    assert not hasattr(model, "intercept_")


def test_concordance_by_site_is_that_of_pairs_within_sites():
    model = FederatedCox(kappa=0.01).fit(X, Y, groups=SITES)
    scores, agree, known = model.predict(X), 0.0, 0.0
    for i in np.flatnonzero(EVENTS):
        later = (SITES[i] == SITES) & ((TIMES[i] < TIMES) | ((TIMES[i] == TIMES) & ~EVENTS))
        known += later.sum()
        agree += (scores[later] < scores[i]).sum() + (scores[later] == scores[i]).sum() / 2
    assert model.score(X, Y, groups=SITES) == pytest.approx(agree / known)
    assert np.isnan(model.score(X[:2], np.zeros((2, 2))))


def test_times_and_events_in_three_forms():
    expected = FederatedCox(kappa=0.02).fit(X, Y).coef_
    fields = np.array(list(zip(EVENTS, TIMES, strict=True)), dtype=[("died", "?"), ("days", "f8")])
    for y in (fields, pd.DataFrame({"days": TIMES, "died": EVENTS}), Y.tolist()):
        assert np.array_equal(FederatedCox(kappa=0.02).fit(X, y).coef_, expected)


def test_ties():
    efron, breslow = (
        FederatedCox(kappa=1e-9, ties=t).fit(X, Y).coef_ for t in ("efron", "breslow")
    )
    assert np.abs(efron - breslow).max() > 1e-3


@pytest.mark.slow
def test_kappa_is_chosen_as_by_the_functions_themselves():
    model = FederatedCox(cv=3, choose="min").fit(X, Y, groups=SITES)
    table = X.assign(time=TIMES, event=EVENTS.astype(float))
    sites = LocalSites([StudySite(str(k), table[k == SITES], NO_GUARDS) for k in range(3)])
    question = Question("time", Plan(list(X.columns)), "cox", {"ties": "efron"}, "event")
    study = begin_study(sites, question)
    penalties = study.penalties({"name": "l1"})
    kappas = automatic_kappas(study, penalties)
    _, found = validate(study, penalties, kappas, folds_of(study, 3, "rows"))
    assert model.kappa_ == kappas[found.deviance.best]
    assert model.kappa_ < kappas[0]


def test_a_grid_search_maximises_the_concordance():
    fields = np.array(list(zip(EVENTS, TIMES, strict=True)), dtype=[("died", "?"), ("days", "f8")])
    search = GridSearchCV(FederatedCox(), {"kappa": [0.5, 0.01]}, cv=3)
    search.fit(X, fields)
    assert search.best_params_ == {"kappa": 0.01}
    assert search.best_score_ > 0.6


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (TIMES, "y needs a time and an event for each row"),
        (Y[:, [0, 1, 1]], "y needs a time and an event for each row"),
        (Y[:20], "the times of y needs a number for each of 500 samples"),
        (Y[:, ::-1], "needs to know if each sample had the event: 0 or 1"),
        (Y * [-1, 1], "finite and not negative"),
        (Y * [np.nan, 1], "y contains NaN"),
    ],
)
def test_responses_that_cannot_be_are_explained(y, words):
    with pytest.raises((FedcanonError, ValueError), match=words):
        FederatedCox(kappa=0.1).fit(X, y)


def test_other_mistakes_are_explained():
    with pytest.raises(FedcanonError, match="ties must be"):
        FederatedCox(ties="exact").fit(X, Y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        FederatedCox().fit(X, Y, groups=[1, 2])
    model = clone(FederatedCox(kappa=0.1)).fit(X, Y)
    with pytest.raises(FedcanonError, match="'x0' of the site X has a value that is no number"):
        model.predict(X.assign(x0="high"))
