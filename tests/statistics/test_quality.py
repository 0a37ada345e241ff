"""Measures of quality, against scikit-learn, lifelines and statsmodels."""

import numpy as np
import pytest
import statsmodels.api as sm
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lifelines.utils import concordance_index
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from fedcanon import FedcanonError
from fedcanon.objectives.cox import Cox
from fedcanon.objectives.families import Binomial, Poisson
from fedcanon.objectives.linear import LinearObjective
from fedcanon.statistics.quality import auc, calibration, calibration_slope, concordance, quality

RNG = np.random.default_rng(2)
M = 200
X = RNG.normal(size=(M, 3))
W = torch.tensor([0.8, -0.5, 0.0, 0.2], dtype=torch.float64)
SCORES = X @ W[:3].numpy() + 0.2
EVENTS = RNG.uniform(size=M) < 1 / (1 + np.exp(-SCORES))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=2, max_size=30))
@settings(max_examples=100, deadline=None)
def test_the_area_under_the_curve_is_scikit_learns(pairs):
    events, scores = np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs], float)
    found = auc(events, scores)
    if events.all() or not events.any():
        assert found is None
    else:
        assert found == pytest.approx(roc_auc_score(events, scores))


@given(
    st.lists(
        st.tuples(st.integers(1, 6), st.booleans(), st.integers(0, 4)), min_size=2, max_size=25
    )
)
@settings(max_examples=100, deadline=None)
def test_concordance_is_that_of_lifelines(rows):
    times, events, scores = (np.array(column) for column in zip(*rows, strict=True))
    found = concordance(times.astype(float), events.astype(bool), scores.astype(float))
    try:
        expected = concordance_index(times, -scores, events)
    except ZeroDivisionError:
        expected = None
    assert found == pytest.approx(expected)


def test_quality_of_a_logistic_model():
    found = quality(LinearObjective(X, EVENTS.astype(float), Binomial()), W)
    shares = 1 / (1 + np.exp(-SCORES))
    assert found.rows == M
    assert found.deviance == pytest.approx(2 * log_loss(EVENTS, shares))
    assert found.auc == pytest.approx(roc_auc_score(EVENTS, SCORES))
    assert found.brier == pytest.approx(brier_score_loss(EVENTS, shares))
    slope = sm.Logit(EVENTS.astype(float), sm.add_constant(SCORES)).fit(disp=False).params[1]
    assert found.slope == pytest.approx(slope, rel=1e-6)


def test_other_families_have_a_deviance_only_and_cox_concordance():
    counts = LinearObjective(X, RNG.poisson(1.0, M).astype(float), Poisson())
    found = quality(counts, W)
    assert (found.auc, found.brier, found.slope, found.concordance) == (None,) * 4
    times = np.ceil(RNG.exponential(np.exp(-SCORES)) * 5)
    survival = quality(Cox(X, times, EVENTS), W[:3])
    assert survival.concordance == pytest.approx(concordance_index(times, -SCORES, EVENTS))


def test_what_cannot_be_measured_is_none():
    assert calibration_slope(np.array([True, True]), np.array([1.0, 2.0])) is None
    assert calibration_slope(np.array([True, False]), np.array([1.0, 1.0])) is None
    separated = np.array([False, False, True, True])
    assert calibration_slope(separated, np.array([1.0, 2.0, 3.0, 4.0])) is None
    assert concordance(np.ones(2), np.zeros(2, bool), np.ones(2)) is None


def test_the_calibration_curve_is_scikit_learns():
    shares = 1 / (1 + np.exp(-SCORES))
    found = calibration(EVENTS, shares)
    observed, expected = calibration_curve(EVENTS, shares, n_bins=10)
    assert np.allclose(found.observed, observed)
    assert np.allclose(found.expected, expected)
    assert found.rows.sum() == M
    with pytest.raises(FedcanonError, match="between 0 and 1"):
        calibration(EVENTS, SCORES)
