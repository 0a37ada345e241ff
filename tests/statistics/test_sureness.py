"""Stability of selections and differences between sites."""

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats

from fedcanon import FedcanonError
from fedcanon.statistics.heterogeneity import Differences, differences
from fedcanon.statistics.stability import Stability, stability
from fedcanon.statistics.study import Question, begin_study
from fedcanon.tables.preparing import Plan
from fedcanon.tables.sites import LocalSites
from tests.statistics.test_study import PLAN, SITES


@pytest.mark.slow
def test_columns_that_matter_are_selected_again_and_again():
    study = begin_study(SITES, Question("ill", PLAN, "binomial"))
    found = stability(study, study.penalties({"name": "l1"}), np.array([0.1, 0.06]), subsamples=12)
    shares = dict(zip(found.columns, found.shares, strict=True))
    assert shares["age"] == 1.0
    assert max(shares[f"noise{k}"] for k in (1, 2, 3)) < 0.8
    assert "age" in found.selected()
    assert found.shares.sum() == pytest.approx(found.mean_selected)
    again = stability(study, study.penalties({"name": "l1"}), np.array([0.1, 0.06]), subsamples=12)
    assert np.array_equal(found.shares, again.shares)


def test_the_bound_on_false_selections_is_that_of_the_paper():
    found = Stability(["a", "b", "c", "d"], np.ones(4), 2.0)
    assert found.false_selections(0.75) == pytest.approx(4 / (0.5 * 4))
    with pytest.raises(FedcanonError, match=r"above 0\.5"):
        found.false_selections(0.5)


def test_the_coefficients_of_each_site_are_those_of_statsmodels():
    plan = Plan(["age", "noise1"])
    study = begin_study(SITES, Question("ill", plan, "binomial"))
    found = differences(study, [0, 1, 2])
    assert found.sites == SITES.names
    for k, site in enumerate(SITES.tables):
        design = sm.add_constant(site.table[["age", "noise1"]])
        theirs = sm.GLM(site.table["ill"], design, family=sm.families.Binomial()).fit(tol=1e-14)
        assert np.allclose(found.estimates[k], theirs.params.iloc[1:], atol=1e-7)
        assert np.allclose(found.errors[k], theirs.bse.iloc[1:], rtol=1e-5)
    assert (found.p > 1e-3).all()  # the sites were drawn with the same coefficients


def test_cochrans_q_is_a_chi_square_of_equal_sites():
    rng = np.random.default_rng(0)
    errors = rng.uniform(0.5, 2.0, size=(6, 4000))
    found = Differences([""] * 4000, [""] * 6, rng.normal(0, errors), errors)
    assert stats.kstest(found.q, stats.chi2(5).cdf).pvalue > 1e-3
    same = Differences(["a"], ["x", "y"], np.ones((2, 1)), np.ones((2, 1)))
    assert (same.q[0], same.i_squared[0], same.p[0]) == (0.0, 0.0, 1.0)


def test_one_site_alone_has_nobody_to_differ_from():
    study = begin_study(LocalSites(SITES.tables[:1]), Question("ill", Plan(["age"]), "binomial"))
    with pytest.raises(FedcanonError, match="fewer than two sites"):
        differences(study, [0, 1])
