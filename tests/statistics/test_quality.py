"""Measures of quality, against scikit-learn, lifelines and statsmodels."""

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from lifelines.utils import concordance_index
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from fedcanon.statistics.model import ALL, Rows
from fedcanon.statistics.quality import (
    calibration_of,
    calibration_slopes,
    concordant,
    in_order,
    quality_of,
)
from fedcanon.statistics.site import StudySite
from fedcanon.statistics.study import Question, begin_study
from fedcanon.tables.preparing import Plan
from fedcanon.tables.sites import LocalSites, each, total
from tests.statistics.test_study import PLAN, POOLED, SITES

STUDY = begin_study(SITES, Question("ill", PLAN, "binomial"))
VECTOR = STUDY.fitted(STUDY.penalty({"name": "l1", "kappa": 0.02})).vector
SCORES = STUDY.model.recipe.prepared(POOLED) @ VECTOR[:-1].numpy() + float(VECTOR[-1])
CHANCES = 1 / (1 + np.exp(-SCORES))
ILL = POOLED["ill"].to_numpy()
ASKED = {"model": STUDY.model, "rows": [ALL], "vectors": [VECTOR.tolist()]}


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=2, max_size=30))
@settings(max_examples=100, deadline=None)
def test_pairs_in_order_are_the_area_under_scikit_learns_curve(pairs):
    events, scores = np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs], float)
    agree, all_pairs = in_order(events, scores)
    if events.all() or not events.any():
        assert all_pairs == 0
    else:
        assert agree / all_pairs == pytest.approx(roc_auc_score(events, scores))


@given(
    st.lists(
        st.tuples(st.integers(1, 6), st.booleans(), st.integers(0, 4)), min_size=2, max_size=25
    )
)
@settings(max_examples=100, deadline=None)
def test_concordance_is_that_of_lifelines(rows):
    times, events, scores = (np.array(column) for column in zip(*rows, strict=True))
    agree, known = concordant(times.astype(float), events.astype(bool), scores.astype(float))
    try:
        assert agree / known == pytest.approx(concordance_index(times, -scores, events))
    except ZeroDivisionError:
        assert known == 0


def test_quality_over_all_sites_is_that_of_the_pooled_rows():
    told = total(SITES, "qualities", **ASKED)
    found = quality_of(told, 0, sites=5)
    assert found.rows == len(POOLED)
    assert found.deviance == pytest.approx(2 * log_loss(ILL, CHANCES))
    assert found.auc == pytest.approx(roc_auc_score(ILL, SCORES), abs=2e-3)  # scores in bins
    assert found.brier == pytest.approx(brier_score_loss(ILL, CHANCES))
    assert found.concordance is None
    observed, expected = calibration_curve(ILL, CHANCES, n_bins=10)
    curve = calibration_of(told, 0)
    assert np.allclose(curve.observed, observed)
    assert np.allclose(curve.expected, expected)
    assert curve.rows.sum() == len(POOLED)


def test_quality_of_each_site_is_exact():
    for site in SITES.tables:
        found = quality_of(each(SITES, "qualities", **ASKED)[site.name], 0, sites=1)
        scores = STUDY.model.recipe.prepared(site.table) @ VECTOR[:-1].numpy() + float(VECTOR[-1])
        assert found.auc == pytest.approx(roc_auc_score(site.table["ill"], scores))


def test_rows_count_by_their_weights():
    weights = np.where(ILL == 1, 3.0, 1.0)
    tables = [site.table.assign(w=1.0 + 2 * site.table["ill"]) for site in SITES.tables]
    sites = LocalSites([StudySite(f"h{k}", table) for k, table in enumerate(tables)])
    there = begin_study(sites, Question("ill", PLAN, "binomial", weights="w"))
    vector = there.fitted(there.penalty({"name": "l1", "kappa": 0.02})).vector
    prepared = there.model.recipe.prepared(POOLED)
    scores = prepared @ vector[:-1].numpy() + float(vector[-1])
    chances = 1 / (1 + np.exp(-scores))
    told = total(
        sites, "qualities", model=there.model, rows=[ALL], vectors=[vector.tolist()], pairs=True
    )
    found = quality_of(told, 0, sites=5)
    assert found.brier == pytest.approx(brier_score_loss(ILL, chances, sample_weight=weights))
    auc = roc_auc_score(ILL, scores, sample_weight=weights)
    assert found.auc == pytest.approx(auc, abs=2e-3)
    assert in_order(ILL == 1, scores, weights)[0] / in_order(ILL == 1, scores, weights)[1] == (
        pytest.approx(auc)
    )
    curve = calibration_of(told, 0)
    assert curve.rows.sum() == pytest.approx(weights.sum())
    assert (curve.observed * curve.rows).sum() == pytest.approx(weights[ILL == 1].sum())


def test_calibration_slopes_are_logistic_regressions_on_the_scores():
    rows = [ALL, Rows(site="hospital 1")]
    slopes = calibration_slopes(STUDY.expansions, VECTOR, rows)
    slope = sm.Logit(ILL, sm.add_constant(SCORES)).fit(disp=False).params[1]
    assert slopes[0] == pytest.approx(slope, rel=1e-6)
    there = np.repeat(np.arange(5), [len(site.table) for site in SITES.tables]) == 1
    slope = sm.Logit(ILL[there], sm.add_constant(SCORES[there])).fit(disp=False).params[1]
    assert slopes[1] == pytest.approx(slope, rel=1e-6)
    assert calibration_slopes(STUDY.expansions, 0 * VECTOR, rows) == [None, None]


def test_other_families_have_a_deviance_only_and_cox_concordance():
    counts = begin_study(SITES, Question("visits", Plan(["age"]), "poisson"))
    asked = {"model": counts.model, "rows": [ALL], "vectors": [[0.1, 0.2]]}
    found = quality_of(total(SITES, "qualities", **asked), 0, sites=5)
    assert (found.auc, found.brier, found.concordance) == (None,) * 3
    survival = begin_study(SITES, Question("visits", Plan(["age", "sex"]), "cox", event="ill"))
    asked = {"model": survival.model, "rows": [ALL], "vectors": [[0.3, 0.2]]}
    found = quality_of(total(SITES, "qualities", **asked), 0, sites=5)
    agree = known = 0.0
    for site in SITES.tables:  # pairs of the same site
        scores = survival.model.recipe.prepared(site.table) @ [0.3, 0.2]
        own = concordance_index(site.table["visits"], -scores, site.table["ill"])
        pairs = concordant(
            site.table["visits"].to_numpy(float), site.table["ill"].to_numpy(bool), scores
        )[1]
        agree, known = agree + own * pairs, known + pairs
    assert found.concordance == pytest.approx(agree / known)
